"""What an operator asks of the trainers' roll, over the daemon's control socket."""

from collections.abc import Mapping
from typing import Any

from daa_consensus.enrolment import Enrolment
from daa_dag.ids import DIGEST_BYTES, NodeId
from daa_node.agreement.enrolment_requests import EnrolmentRequests
from daa_node.api.handlers import SCHEMA_VERSION, Handler
from daa_node.errors import UserError


class TrainerHandlers:
    """Those of one node."""

    def __init__(self, enrolments: EnrolmentRequests) -> None:
        self._enrolments = enrolments

    def by_command(self) -> dict[str, Handler]:
        return {
            "trainers": self.trainers,
            "enroll": self.enroll,
            "vouch": self.vouch,
            "retire": self.retire,
        }

    async def trainers(self, _request: Mapping[str, Any]) -> Mapping[str, Any]:
        return {"schema_version": SCHEMA_VERSION, **self._enrolments.listing()}

    async def enroll(self, _request: Mapping[str, Any]) -> Mapping[str, Any]:
        return _said(await self._enrolments.enroll())

    async def vouch(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        return _said(await self._enrolments.vouch(_node(request)))

    async def retire(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        return _said(await self._enrolments.retire(_node(request)))


def _said(enrolment: Enrolment) -> dict[str, Any]:
    return {"schema_version": SCHEMA_VERSION, "id": enrolment.request.id.hex()}


def _node(request: Mapping[str, Any]) -> NodeId:
    try:
        node_id = bytes.fromhex(str(request["trainer"]))
    except (KeyError, ValueError):
        node_id = b""
    if len(node_id) != DIGEST_BYTES:
        raise UserError("name a node by its id of 64 hex digits: `daa-node trainers` lists them")
    return NodeId(node_id)
