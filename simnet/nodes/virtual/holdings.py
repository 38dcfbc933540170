"""What daemons hold in memory: the containers of those parts that keep what others send.

Once all has healed and everybody has followed, nothing below the newest final block is of use, and
nothing much lies above it. So each container holds so much a validator, or so much a contributor
where trainers speak, too, and not more with each round: blocks and certificates of the tree,
statements of the open rounds, messages that wait, facts, Acks, and updates that are being
collected. And a mailbox keeps nothing of anybody whom it neither writes
to nor reads: what is left of each who has gone would add up over the years.
"""

import gc
from collections.abc import Iterator, Mapping, Set, Sized
from itertools import compress

from daa_consensus.bft.ballots import Ballots
from daa_consensus.bft.catch_up import CatchUp
from daa_consensus.bft.chain import Chain
from daa_consensus.bft.proofs import Proofs
from daa_consensus.bft.state import Simplex
from daa_dag.ids import NodeId
from daa_node.agreement.effects_host import BLOCKS_KEPT, EffectsHost
from daa_node.agreement.facts import Facts
from daa_node.agreement.inbox import INBOX_EVENTS_MAX, Inbox
from daa_node.agreement.outcomes import Outcomes
from daa_node.agreement.positions import Positions
from daa_node.agreement.round_talk import RoundTalk
from daa_node.agreement.vouching import Vouching
from daa_node.disputes.court import Court
from daa_node.disputes.decided_sets import DISPUTE_ROUNDS
from daa_node.network.mailbox import Mailbox
from daa_node.network.outbox import OUTBOX_MESSAGES_MAX, Outbox
from daa_node.rounds.collect import Acks, Collection

# Of one container. Measured at the end of random runs: seven a node at most, statements of two
# rounds; and twice that.
HELD_LEAST, HELD_A_NODE_MAX = 64, 14
# What a part may keep beside, by a limit of its own.
HOLDERS: Mapping[type, int] = {
    **dict.fromkeys((Ballots, CatchUp, Chain, Proofs, Simplex), 0),
    **dict.fromkeys((Facts, Outcomes, RoundTalk, Positions, Vouching), 0),
    **dict.fromkeys((Acks, Collection), 0),
    EffectsHost: BLOCKS_KEPT,
    Inbox: INBOX_EVENTS_MAX,  # which a liar may fill whenever the machine waits for a disk
    Outbox: 2 * OUTBOX_MESSAGES_MAX,  # statements, and answers
}
# What these keep is of what validators say: no trainer's word comes in.
OF_VALIDATORS = frozenset({Ballots, CatchUp, Chain, Proofs, Simplex, Vouching, Acks})

# After its time a dispute is dropped when its court has told everybody what there is to tell, of
# whom those that do not answer take half a minute.
OVERDUE_ROUNDS_MAX = DISPUTE_ROUNDS // 2

_LOOKED_AT = frozenset({Mailbox, *HOLDERS})


def excess(validators: int, trainers: int) -> str | None:
    """A container that holds more than a network of so many nodes takes; None if none does.

    Looks at every daemon of this process: a run begins without those of the run before. What died
    within the run may lie about until it is collected.
    """
    if _excess(validators, trainers) is None:
        return None
    gc.collect()
    return _excess(validators, trainers)


def overdue() -> str | None:
    """What a daemon keeps of disputes that are over their time; None if nothing.

    Of the daemons that are there: one that has ended knows of no newer rounds.
    """
    for court in [thing for thing in gc.get_objects() if type(thing) is Court]:
        newest = court._sets.newest_round
        if len(court._sets._drawn) > DISPUTE_ROUNDS:
            return f"what the lot drew in {len(court._sets._drawn)} rounds, in round {newest}"
        for case in court._cases.values():
            age = newest - case.charge.drawn.round
            if age >= DISPUTE_ROUNDS + OVERDUE_ROUNDS_MAX:
                return f"a case of {age} rounds ago, in round {newest}"
    return None


def _excess(validators: int, trainers: int) -> str | None:
    contributors, things = validators + trainers, gc.get_objects()
    for holder in compress(things, map(_LOOKED_AT.__contains__, map(type, things))):
        if isinstance(holder, Mailbox):
            if left := _left_of_others(holder):
                return left
        else:
            speakers = validators if type(holder) in OF_VALIDATORS else contributors
            most = HELD_LEAST + HELD_A_NODE_MAX * speakers + HOLDERS[type(holder)]
            if isinstance(holder, Acks):  # each acknowledges what everybody contributes
                most += contributors * (1 + validators)
            for name, held in vars(holder).items():
                size = sum(_sizes(held))
                if size > most:
                    return f"{size} in {type(holder).__name__}.{name}, at most {most}"
    return None


def _left_of_others(mailbox: Mailbox) -> str | None:
    """A container that holds something of who has gone."""
    read: Set[NodeId] = mailbox._members
    written = read if mailbox._is_one else mailbox._reading.keys()
    for name, held, allowed in (
        ("_boxes", mailbox._boxes.keys(), written),
        ("_reading", mailbox._reading.keys(), read),
        ("_paces", mailbox._paces._paces.keys(), read),
    ):
        if left := held - allowed:
            return f"{len(left)} in Mailbox.{name} of who has gone"
    return None


def _sizes(held: object) -> Iterator[int]:
    """Of a container, and of those right inside of it."""
    if isinstance(held, str | bytes) or not isinstance(held, Sized):
        return
    yield len(held)
    if isinstance(held, Mapping):
        yield from (len(part) for part in held.values() if isinstance(part, dict | list | set))
