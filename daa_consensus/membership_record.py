"""A membership as bytes and back, in one place: what a node keeps so as not to fold its chain anew.

Nobody else reads these bytes, and nothing signs them: a record that does not fit is made again from
the chain. Each field is written under its own name; a test says when one is missing here.
"""

from collections.abc import Mapping
from typing import Any

from daa_consensus.committee import Committee, Validator
from daa_consensus.errors import BadMessage
from daa_consensus.membership import Membership, Rule, Seat, Waiting
from daa_consensus.operations import Request, request_from_value
from daa_dag import canonical
from daa_dag.ids import Digest, NodeId


def committee_value(committee: Committee) -> canonical.Value:
    return [[validator.node_id, validator.stake] for validator in committee.validators]


def committee_from(value: Any) -> Committee:
    """Raises ValueError, TypeError or AssertionError for what is none."""
    return Committee(tuple(Validator(NodeId(name), stake) for name, stake in value))


def membership_value(membership: Membership) -> Mapping[str, canonical.Value]:
    """By the names of its fields."""
    now = membership
    return {
        "committee": committee_value(now.committee),
        "epoch": now.epoch,
        "waiting": [
            [_request_value(w.request), w.place, sorted(w.approvers), w.since] for w in now.waiting
        ],
        "settled": [[expires, sorted(ids)] for expires, ids in sorted(now.settled.items())],
        "applied": [_request_value(request) for request in now.applied],
        "dropped": [[_request_value(request), rule.name] for request, rule in now.dropped],
        "convicted": list(now.convicted),
        "expelled": list(now.expelled),
        "seats": [[seat.name, seat.holder, seat.since] for seat in now.seats],
        "objection_epochs": now.objection_epochs,
        "trainers": sorted(now.trainers),
    }


def membership_from(value: Any) -> Membership:
    """Raises BadMessage unless it is what `membership_value` makes."""
    try:
        return Membership(
            committee=committee_from(value["committee"]),
            epoch=value["epoch"],
            waiting=tuple(_waiting_from(item) for item in value["waiting"]),
            settled={expires: frozenset(map(Digest, ids)) for expires, ids in value["settled"]},
            applied=tuple(request_from_value(*request) for request in value["applied"]),
            dropped=tuple(
                (request_from_value(*request), Rule[rule]) for request, rule in value["dropped"]
            ),
            convicted=_names(value["convicted"]),
            expelled=_names(value["expelled"]),
            seats=tuple(
                Seat(NodeId(name), NodeId(holder), since) for name, holder, since in value["seats"]
            ),
            objection_epochs=value["objection_epochs"],
            trainers=frozenset(_names(value["trainers"])),
        )
    except (LookupError, TypeError, ValueError, AssertionError) as fault:
        raise BadMessage(f"no record of a membership: {fault!r}") from None


def _request_value(request: Request) -> canonical.Value:
    return [request.expires_epoch, request.action.as_value()]


def _waiting_from(value: Any) -> Waiting:
    request, place, approvers, since = value
    holder = None if place is None else NodeId(place)
    return Waiting(request_from_value(*request), holder, frozenset(_names(approvers)), since)


def _names(value: Any) -> tuple[NodeId, ...]:
    return tuple(NodeId(name) for name in value)
