"""A membership as bytes and back, in one place: what a node keeps so as not to fold its chain anew.

Nobody else reads these bytes, and nothing signs them: a record that does not fit is made again from
the chain. Each field is written under its own name; a test says when one is missing here.
"""

from collections.abc import Mapping
from typing import Any

from daa_consensus.committee import FIRST_VERSION, Committee, Validator
from daa_consensus.errors import BadMessage
from daa_consensus.membership import Membership, Rule, Seat, Waiting
from daa_consensus.operations import Request, request_from_value
from daa_consensus.protocol_words import UNSAID, ProtocolWords
from daa_consensus.roll import Admission, Entry, Roll, RollRules
from daa_dag import canonical
from daa_dag.ids import Digest, NodeId


def committee_value(committee: Committee) -> canonical.Value:
    """Its version comes first where that is a later one than each network begins with."""
    members: list[canonical.Value] = [[v.node_id, v.stake] for v in committee.validators]
    return members if committee.version == FIRST_VERSION else [committee.version, *members]


def committee_from(value: Any) -> Committee:
    """Raises ValueError, TypeError or AssertionError for what is none."""
    version, members = FIRST_VERSION, value
    if isinstance(value[0], int):
        version, *members = value
        assert version > FIRST_VERSION, "one committee has one form"
    return Committee(tuple(Validator(NodeId(name), stake) for name, stake in members), version)


def membership_value(membership: Membership) -> Mapping[str, canonical.Value]:
    """By the names of its fields."""
    now = membership
    # nobody speaks of another version, as a rule: then the record is as it was without any words
    words = {} if now.words == UNSAID else {"words": _words_value(now.words)}
    return {
        **words,
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
        "roll": _roll_value(now.roll),
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
            roll=_roll_from(value["roll"]),
            words=_words_from(value["words"]) if "words" in value else UNSAID,
        )
    except (LookupError, TypeError, ValueError, AssertionError) as fault:
        raise BadMessage(f"no record of a membership: {fault!r}") from None


def _words_value(words: ProtocolWords) -> canonical.Value:
    said: list[canonical.Value] = [[name, most] for name, most in sorted(words.said.items())]
    return [said, sorted(words.heard_of), words.announced]


def _words_from(value: Any) -> ProtocolWords:
    said, heard_of, announced = value
    words = ProtocolWords(
        {NodeId(name): most for name, most in said}, frozenset(_names(heard_of)), announced
    )
    assert isinstance(announced, bool)
    assert words != UNSAID, "one record has one form"
    return words


def _roll_value(roll: Roll) -> canonical.Value:
    assert not roll.asked, "no set is being read"
    rules, entries = roll.rules, list[canonical.Value]()
    for e in roll.entries:
        entries.append([e.name, e.keys, e.voucher, e.since, e.missed, e.planned, e.until])
    limits = [rules.per_voucher, rules.roll_max, rules.contributors_max, rules.listed_max]
    return [[rules.admission.value, *limits], entries, roll.round, roll.seed]


def _roll_from(value: Any) -> Roll:
    (admission, *limits), entries, round_, seed = value
    return Roll(
        RollRules(Admission(admission), *limits),
        tuple(
            Entry(NodeId(name), keys, None if voucher is None else NodeId(voucher), *rounds)
            for name, keys, voucher, *rounds in entries
        ),
        round_,
        Digest(seed),
    )


def _request_value(request: Request) -> canonical.Value:
    return [request.expires_epoch, request.action.as_value()]


def _waiting_from(value: Any) -> Waiting:
    request, place, approvers, since = value
    holder = None if place is None else NodeId(place)
    return Waiting(request_from_value(*request), holder, frozenset(_names(approvers)), since)


def _names(value: Any) -> tuple[NodeId, ...]:
    return tuple(NodeId(name) for name in value)
