"""How a node that lies behaves: what it says to whom, what it hears, and what it claims.

A node's machines are honest code. A lying node has a Conduct between them and the world:

    machine -> signer -> letter --Conduct.sends(voice, receiver, letter)--> letters on the wire
    letter from the wire --Conduct.hears(body, sender, letter)--> this machine gets it, or not
    decided set --Conduct.result(voice, honest)--> what its Exec says, or None for silence
    decided set --Conduct.holds_data(body, block)--> whether it ever says that it holds the data

`bodies` machines run under the one key, each with a disk and a guard of its own, so that twins
sign two words for a slot although each of them is honest. For every letter of a body and every
receiver `sends` returns what goes on the wire instead: the letter itself, nothing (withheld),
another one, or more. It may make words of its own: `voice.sign` signs anything under the node's
key, past all rules. Letters come out in the order returned, over the same links as everybody's.

A Conduct is made once a node and run; it may keep what it likes. `voice.chance` is all the chance
it may use. Kinds of adversary are registered by name in simnet/heap/consensus.py.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from daa_consensus.bft.messages import Block, ResultPayload
from daa_consensus.bft.state import Simplex
from daa_consensus.votes import Kind, Signed, Statement
from daa_node.agreement.letters import Letter, Proposed, Said


@dataclass(frozen=True, slots=True)
class Voice:
    """What a Conduct may look at and use: one body of its node."""

    node: int
    body: int
    nodes: int  # of the world
    machine: Simplex  # for reading only
    sign: Callable[[Statement], Signed]
    chance: random.Random


class Conduct(Protocol):
    """One node's lies."""

    bodies: int

    def sends(self, voice: Voice, receiver: int, letter: Letter) -> Sequence[Letter]:
        """What `receiver` gets instead of `letter`."""

    def hears(self, body: int, sender: int, letter: Letter) -> bool:
        """Whether this body gets a letter that came for the node."""

    def result(self, voice: Voice, honest: ResultPayload) -> ResultPayload | None:
        """What the Exec says of a decided set; None says nothing."""

    def holds_data(self, body: int, block: Block) -> bool:
        """Whether the body answers that it holds what a set names."""


class Equivocator:
    """Twins: each body speaks to about half of the others, and votes go along with their opposite.

    As leader the bodies propose two blocks; as voters they take both sides.
    """

    bodies = 2

    def __init__(self) -> None:
        self._blocks: dict[tuple[int, int], list[Block]] = {}  # proposed in (epoch, view), as seen

    def sends(self, voice: Voice, receiver: int, letter: Letter) -> Sequence[Letter]:
        self._note(letter)
        if voice.chance.randrange(2):
            return self._lies(voice, letter)
        return [letter, *self._lies(voice, letter)]

    def hears(self, body: int, sender: int, letter: Letter) -> bool:
        self._note(letter)
        return True

    def result(self, voice: Voice, honest: ResultPayload) -> ResultPayload | None:
        return honest

    def holds_data(self, body: int, block: Block) -> bool:
        return True

    def _note(self, letter: Letter) -> None:
        if isinstance(letter.body, Proposed):
            block = letter.body.block
            seen = self._blocks.setdefault((block.epoch, block.view), [])
            if block not in seen:
                seen.append(block)

    def _lies(self, voice: Voice, letter: Letter) -> list[Letter]:
        match letter.body:
            case Said(signed) if signed.statement.view > 0 and not voice.chance.randrange(4):
                statement = signed.statement
            case _:
                return []
        blocks = self._blocks.get((statement.domain.epoch, statement.view))
        kinds: list[tuple[Kind, int, bytes | None]] = [(Kind.NULLIFY, 0, None)]
        if blocks:
            other = voice.chance.choice(blocks)
            kinds += [(kind, other.height, other.id) for kind in (Kind.NOTARIZE, Kind.FINALIZE)]
        words = [
            voice.sign(Statement(statement.domain, kind, statement.view, height, value))
            for kind, height, value in kinds
        ]
        return [Letter(letter.position, Said(word)) for word in words]
