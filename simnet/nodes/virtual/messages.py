"""What members write to each other, before encryption: votes, blocks and certificates."""

from collections.abc import Collection, Mapping

from daa_consensus.bft.chain import ANY_COMMITTEE
from daa_consensus.votes import Certificate, Kind, Signed
from daa_dag.ids import VertexId
from daa_node.agreement.messages import (
    Body,
    Certified,
    Proposed,
    Stated,
    WantCertificates,
)
from daa_node.errors import PeerFault
from simnet.checks.invariants import READ, Broken, Watch
from simnet.nodes.virtual.completeness import Completeness
from simnet.world.decoded_messages import decoded

MESSAGES_KEPT = 512  # to look at a message once, not once a receiver


class Messages:
    """Reads each message once and tells the watch what honest nodes say in it.

    `numbers` as a Founding has; `distrusted` are nodes that may not know that they have forgotten.
    """

    def __init__(
        self,
        watch: Watch,
        completeness: Completeness,
        numbers: Mapping[str, int],
        liars: Collection[int],
        distrusted: Collection[int],
    ) -> None:
        self._watch = watch
        self._completeness = completeness
        self._numbers = numbers
        self._liars = liars
        self._distrusted = distrusted
        self._read: dict[bytes, None] = {}
        self.newest_view = (0, 1)  # (epoch, view) that an honest node has told to stand in

    def read(self, node: int, payload: bytes) -> None:
        """`node` writes this. Raises Broken."""
        if payload in self._read:
            return
        self._read[payload] = None
        if len(self._read) > MESSAGES_KEPT:
            del self._read[next(iter(self._read))]
        is_honest = node not in self._liars
        try:
            message = decoded(payload, ANY_COMMITTEE)
        except PeerFault as fault:
            if is_honest:
                raise Broken(READ, f"node {node} writes what is no message") from fault
            return
        if isinstance(message.body, Stated):
            self._completeness.offered(message.body.signed)
        if is_honest:
            at = message.position
            self.newest_view = max(self.newest_view, (at.epoch, at.view))
            self._look_into(node, message.body)

    def _look_into(self, node: int, body: Body) -> None:
        match body:
            case Stated(signed):
                self._word(node, signed)
            case Proposed(signed, block, certificate):
                self._word(node, signed)
                if self._numbers.get(signed.signer.hex()) == node:
                    self._completeness.proposed(node, block)
                if certificate is not None:
                    self._certificate(certificate)
            case Certified(certificate, _):
                self._certificate(certificate)
            case WantCertificates():
                self._watch.sometimes["certificate asked for by who was behind"] += 1
            case _:
                pass

    def _word(self, node: int, signed: Signed) -> None:
        is_own = self._numbers.get(signed.signer.hex()) == node  # others' are passed on as well
        if is_own and node not in self._distrusted:
            self._watch.word(node, signed)
            self._completeness.said(node, signed)

    def _certificate(self, certificate: Certificate) -> None:
        statement = certificate.statement
        if statement.kind is not Kind.EXEC:
            if statement.kind is Kind.NULLIFY:
                self._watch.sometimes["view nullified"] += 1
            self._watch.certificate(certificate)
            return
        self._watch.execution(certificate)
        match statement.value:
            case [bytes() as vertex_id, *_]:
                self._watch.executed(statement.height, VertexId(vertex_id))
            case _:
                raise AssertionError("an execution certificate names its vertex")
