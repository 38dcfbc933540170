"""How a node that lies behaves: what it says to whom, what it hears, and what it claims.

A node's machines are honest code. A lying node has a Conduct between them and the world:

    machine -> signer -> letter --Conduct.sends(voice, receiver, letter)--> letters on the wire
    letter from the wire --Conduct.hears(body, sender, letter)--> this machine gets it, or not
    decided set --Conduct.result(voice, honest)--> what its Exec says, or None for silence
    decided set --Conduct.holds_data(body, block)--> whether it ever says that it holds the data
    who asks for a blob --Conduct.shelf--> how it is answered (whole daemons only)

The machine is that of a heap world, or a whole daemon, whose seams simnet/adversaries/disguise.py
wraps: there `holds_data` is out of reach, everything else is the same.

`bodies` machines run under the one key, each with a disk and a guard of its own, so that twins
sign two words for a slot although each of them is honest. On the heap they are at one place, and
hear everything; `daemons` have hosts of their own, and share what others send to the node, or hear
what a script of twins lets pass.

For every letter of a body and every receiver `sends` returns what goes on the wire instead: the
letter itself, nothing (withheld), another one, or more; bytes that are no letter, too. It may make
words of its own: `voice.sign` signs anything under the node's key, past all rules. Letters come out
in the order returned, over the same links as everybody's.

A Conduct is made once a node and run; it may keep what it likes. `voice.chance` is all the chance
it may use. Kinds of adversary are registered by name in simnet/adversaries/kinds.py.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Protocol

from daa_consensus.bft.messages import Block, ResultPayload
from daa_consensus.committee import Domain
from daa_consensus.votes import Signed, Statement
from daa_dag.ids import NodeId
from daa_node.agreement.letters import Letter
from daa_node.identity.validators import MemberKeys


@dataclass(frozen=True, slots=True)
class Stand:
    """Where the liar's machine stands."""

    domain: Domain
    view: int
    height: int  # of its final tip
    tip_open: bool  # whether the round of that height is decided and not closed

    @property
    def round(self) -> int:
        """The open round, or the next one."""
        return self.height if self.tip_open else self.height + 1


@dataclass(frozen=True, slots=True)
class Pen:
    """A key that a liar signs with, past all rules: its node's, or one that it made up."""

    node_id: NodeId
    member: MemberKeys
    sign: Callable[[Statement], Signed]


@dataclass(frozen=True, slots=True)
class Voice:
    """What a Conduct may look at and use: one body of its node."""

    node: int
    body: int
    bodies: int  # that say what this conduct wants
    nodes: int  # of the world
    stand: Callable[[], Stand]
    sign: Callable[[Statement], Signed]
    chance: random.Random
    pen: Callable[[int], Pen]  # keys by number: 0 is the node's own, all others nobody knows


class Shelf(Enum):
    """How a liar answers who asks it for a blob."""

    OPEN = auto()  # as an honest node
    CLOSED = auto()  # it has nothing
    SLOW = auto()  # late, every time
    DAMAGED = auto()  # with other bytes
    DRIPPING = auto()  # each answer just before others lose patience
    SHORT = auto()  # all but the last piece, which never comes


class Conduct(Protocol):
    """One node's lies. What a kind does not override, an honest node does."""

    bodies: int = 1
    daemons: int = 1
    shelf: Shelf = Shelf.OPEN

    def sends(self, voice: Voice, receiver: int, letter: Letter) -> Sequence[Letter | bytes]:
        """What `receiver` gets instead of `letter`."""
        return (letter,)

    def hears(self, body: int, sender: int, letter: Letter) -> bool:
        """Whether this body gets a letter that came for the node."""
        return True

    def result(self, voice: Voice, honest: ResultPayload) -> ResultPayload | None:
        """What the Exec says of a decided set; None says nothing."""
        return honest

    def holds_data(self, body: int, block: Block) -> bool:
        """Whether the body answers that it holds what a set names."""
        return True
