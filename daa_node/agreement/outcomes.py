"""What the committee made final, as rounds see it: a decided set, then its result or its abort.

    open --set block final--> decided --result or abort block final--> resolved

Blocks are gathered until a round resolves: together with the newest finalization certificate they
are the header chain that a checkpoint is published with.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import trio

from daa_consensus.bft.effects import Finalized
from daa_consensus.bft.messages import AbortPayload, Block, ResultPayload, SetPayload
from daa_consensus.votes import Certificate

RESOLUTIONS_KEPT = 16  # a node that cannot follow for longer catches up from checkpoints instead


@dataclass(frozen=True, slots=True)
class Resolution:
    """How one round ended. `blocks` (oldest first) reach from the one resolved before to the one
    that `certificate` finalizes, `trailing` blocks excepted."""

    round: int
    set_block: Block
    result: ResultPayload | None  # None: aborted
    blocks: tuple[Block, ...]
    trailing: tuple[Block, ...]
    certificate: Certificate


class Outcomes:
    """Decided sets and resolutions, with a place to wait for them."""

    def __init__(self, resolved_round: int, open_set: Block | None) -> None:
        """`open_set`: the final set of the round that is open, if a restart found one."""
        self.resolved_round = resolved_round
        self._set_blocks: dict[int, Block] = {}
        if open_set is not None:
            self._set_blocks[open_set.height] = open_set
        self._resolutions: dict[int, Resolution] = {}
        self._tail: list[Block] = []
        self._changed = trio.lowlevel.ParkingLot()

    def note(self, final: Finalized) -> list[Resolution]:
        """Take newly final blocks; the rounds that they resolve, oldest first."""
        self._tail += final.blocks
        ended: list[tuple[int, ResultPayload | None]] = []
        for block in final.blocks:
            match block.payload:
                case SetPayload():
                    self._set_blocks[block.payload.round] = block
                case ResultPayload():
                    ended.append((block.payload.round, block.payload))
                case AbortPayload():
                    ended.append((block.payload.round, None))
                case _:
                    pass  # empty blocks only carry finality
        resolved = []
        for round_number, result in ended:
            # Several rounds in one batch share its blocks: the first carries them all.
            blocks, self._tail = tuple(self._tail), []
            resolution = Resolution(
                round_number,
                self._set_blocks[round_number],
                result,
                blocks,
                final.trailing,
                final.certificate,
            )
            self._resolutions[round_number] = resolution
            self.resolved_round = round_number
            resolved.append(resolution)
        for old in [r for r in self._resolutions if r <= self.resolved_round - RESOLUTIONS_KEPT]:
            del self._resolutions[old]
        for old in [r for r in self._set_blocks if r < self.resolved_round]:
            del self._set_blocks[old]
        self._changed.unpark_all()
        return resolved

    def is_decided(self, round_number: int) -> bool:
        return round_number in self._set_blocks

    async def decided(self, round_number: int) -> Block:
        """The final set block of the round, once there is one."""
        while round_number not in self._set_blocks:
            await self._changed.park()
        return self._set_blocks[round_number]

    def resolution(self, round_number: int) -> Resolution | None:
        """How the round ended, if that is final and still remembered."""
        return self._resolutions.get(round_number)

    async def resolved(self, round_number: int) -> Resolution | None:
        """How the round ended, once that is final; None if so long ago that it is forgotten."""
        while round_number > self.resolved_round:
            await self._changed.park()
        return self._resolutions.get(round_number)


def last_closed(blocks: Iterable[Block]) -> int:
    """The newest round that the blocks close, by result or abort; 0 if none."""
    closing = (b.payload for b in blocks if isinstance(b.payload, ResultPayload | AbortPayload))
    return max((payload.round for payload in closing), default=0)
