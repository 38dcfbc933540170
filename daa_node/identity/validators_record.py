"""The history of a validator set as bytes and back; see membership_record for the newest of it.

Epochs in which nothing changed stand together, so that a year of them is a few lines.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from daa_consensus.errors import BadMessage
from daa_consensus.membership import Membership
from daa_consensus.membership_record import (
    committee_from,
    committee_value,
    membership_from,
    membership_value,
)
from daa_dag import canonical
from daa_dag.errors import DagError
from daa_dag.ids import NodeId
from daa_node.identity.epoch_runs import Epoch
from daa_node.identity.roll_history import RollRecord, roll_record_from, roll_record_value
from daa_node.seams import PeerId


class Verdict(NamedTuple):
    """Who stands convicted from a round's set on, or, `closed`, from its closing on."""

    round: int
    closed: bool
    convicted: tuple[NodeId, ...]


@dataclass(frozen=True, slots=True)
class ValidatorsRecord:
    """All that a `Validators` has come to, up to one final block."""

    epochs: Sequence[tuple[Epoch, int]]  # how many in a row are alike, oldest first
    now: Membership
    verdicts: Sequence[Verdict]  # oldest first
    followed: tuple[int, int]  # slot of the newest block that was taken in
    public_keys: Mapping[NodeId, bytes]
    peer_ids: Mapping[NodeId, PeerId]
    passing: frozenset[NodeId]  # known only while their request waits, or they stand on the roll
    gone: Sequence[NodeId]  # trainers that have left the roll, oldest first
    rolls: RollRecord


def encode_validators(record: ValidatorsRecord) -> bytes:
    keys = sorted(record.public_keys.items())
    return canonical.encode(
        {
            "epochs": [
                [committee_value(epoch.committee), list(epoch.contributors), count]
                for epoch, count in record.epochs
            ],
            "now": membership_value(record.now),
            "verdicts": [[v.round, v.closed, list(v.convicted)] for v in record.verdicts],
            "followed": list(record.followed),
            "public_keys": [[name, key] for name, key in keys],
            "peer_ids": [[name, peer_id] for name, peer_id in sorted(record.peer_ids.items())],
            "passing": sorted(record.passing),
            "gone": list(record.gone),
            "rolls": roll_record_value(record.rolls),
        }
    )


def decode_validators(payload: bytes) -> ValidatorsRecord:
    """Raises BadMessage unless it is what `encode_validators` makes."""
    try:
        value = canonical.decode(payload, len(payload))
        epoch, view = value["followed"]
        return ValidatorsRecord(
            epochs=[
                (Epoch(committee_from(committee), _names(contributors)), int(count))
                for committee, contributors, count in value["epochs"]
            ],
            now=membership_from(value["now"]),
            verdicts=[Verdict(at, closed, _names(who)) for at, closed, who in value["verdicts"]],
            followed=(epoch, view),
            public_keys={NodeId(name): key for name, key in value["public_keys"]},
            peer_ids={NodeId(name): PeerId(peer_id) for name, peer_id in value["peer_ids"]},
            passing=frozenset(_names(value["passing"])),
            gone=_names(value["gone"]),
            rolls=roll_record_from(value["rolls"]),
        )
    except DagError as fault:
        raise BadMessage(f"no record of validators: {fault}") from None
    except (LookupError, TypeError, ValueError, AssertionError) as fault:
        raise BadMessage(f"no record of validators: {fault!r}") from None


def _names(value: Any) -> tuple[NodeId, ...]:
    return tuple(NodeId(name) for name in value)
