"""How a node that lies behaves: what it says to whom, and what it hears.

A node's daemon is honest code. A lying node has a Behaviour between its seams and the world, put
there by simnet/world/adversaries/disguise.py:

    daemon -> message --Behaviour.sends(voice, receiver, message)--> messages on the wire
    message from the wire --Behaviour.hears(message)--> the daemon
    who asks for a blob --Behaviour.shelf--> how it is answered

So many `daemons` run under the one key, each with a host, a disk and a guard of its own: twins
sign two statements for a slot although each of them is honest. They share what others send to the
node, or hear what a script of twins lets pass.

For every message of the daemon and every receiver `sends` returns what goes on the wire instead:
the message itself, nothing (withheld), another one, or more; bytes that are no message, too. It may
make statements of its own: `voice.sign` signs anything under the node's key, past all rules.
Messages come out in the order returned, over the same links as everybody's.

A Behaviour is made once a node and run; it may keep what it likes. `voice.chance` is all the chance
it may use. Kinds of adversary are registered by name in simnet/world/adversaries/liars.py.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, Protocol

from daa_consensus.bft.messages import Block
from daa_consensus.committee import Domain
from daa_consensus.votes import Signed, Statement
from daa_dag.ids import NodeId
from daa_node.agreement.messages import Message, Proposed
from daa_node.identity.validators import MemberKeys

SEEN_KEPT = 64  # views and votes, the newest: they are what a lie is about

Slot = tuple[int, int]  # (epoch, view)


@dataclass(frozen=True, slots=True)
class Pen:
    """A key that a liar signs with, past all rules: its node's, or one that it made up."""

    node_id: NodeId
    member: MemberKeys
    sign: Callable[[Statement], Signed]


class SeenBlocks:
    """Blocks that a liar has seen proposed, in that order: some that it should not vote for."""

    def __init__(self) -> None:
        self._blocks: dict[Slot, list[Block]] = {}

    def note(self, message: Message) -> None:
        """Remember what the message proposes, if it does."""
        if isinstance(message.body, Proposed):
            block = message.body.block
            seen = self._blocks.setdefault((block.epoch, block.view), [])
            if block not in seen:
                seen.append(block)
            forget(self._blocks)

    def of(self, statement: Statement) -> list[Block]:
        """What was proposed in the view that the statement speaks of."""
        return self._blocks.get((statement.domain.epoch, statement.view), [])

    def first_of_view(self, view: int) -> Block | None:
        """Of whichever epoch."""
        return next((seen[0] for (_, at), seen in self._blocks.items() if at == view), None)


def forget(seen: dict[Any, Any]) -> None:
    """All but the newest."""
    while len(seen) > SEEN_KEPT:
        del seen[next(iter(seen))]


@dataclass(slots=True)
class Voice:
    """What a Behaviour may look at and use, and where its daemon is."""

    nodes: int  # of the world
    domain: Domain
    view: int
    height: int  # of its newest closed round
    sign: Callable[[Statement], Signed]
    chance: random.Random
    pen: Callable[[int], Pen]  # keys by number: 0 is the node's own, all others nobody knows
    seen: SeenBlocks = field(default_factory=SeenBlocks)

    @property
    def round(self) -> int:
        """The one after the newest that is closed."""
        return self.height + 1


class Shelf(Enum):
    """How a liar answers who asks it for a blob."""

    OPEN = auto()  # as an honest node
    CLOSED = auto()  # it has nothing
    SLOW = auto()  # late, every time
    DAMAGED = auto()  # with other bytes
    DRIPPING = auto()  # each answer just before others lose patience
    SHORT = auto()  # all but the last piece, which never comes


class Behaviour(Protocol):
    """One node's lies. What a kind does not override, an honest node does."""

    daemons: int = 1
    shelf: Shelf = Shelf.OPEN

    def sends(self, voice: Voice, receiver: int, message: Message) -> Sequence[Message | bytes]:
        """What `receiver` gets instead of `message`."""
        return (message,)

    def hears(self, message: Message) -> None:
        """A message has come."""
