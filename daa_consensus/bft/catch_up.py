"""Who stands where, who is due an offer of certificates, and what I lack myself.

A certificate of n signatures is never flooded: a peer gets one when a delta after I passed the
place where it stands it still stands there, and at most once a delta. What peers claim of
themselves only ever costs me an offer, or, with more than f weight behind it, an early look at the
view.
"""

from dataclasses import dataclass

from daa_consensus.bft.chain import Chain
from daa_consensus.bft.effects import FetchBlock
from daa_consensus.bft.events import PeerPosition
from daa_consensus.committee import Committee
from daa_dag.ids import BlockId, NodeId

PEERS_MAX = 1_024  # whose lag is watched; the oldest goes first


@dataclass(frozen=True, slots=True)
class Standing:
    """A place on the way: comparable, since each of the three only grows."""

    epoch: int
    view: int
    finalized_view: int

    def is_reached_by(self, theirs: PeerPosition) -> bool:
        """Whether who stands there misses nothing of what there is here."""
        ahead = (theirs.epoch, theirs.view) >= (self.epoch, self.view)
        return ahead and theirs.finalized_view >= self.finalized_view

    def is_passed_by(self, theirs: PeerPosition) -> bool:
        """Whether who stands there has what is missing here."""
        ahead = (theirs.epoch, theirs.view) > (self.epoch, self.view)
        return ahead or theirs.finalized_view > self.finalized_view


class WantedBlocks:
    """Blocks that a quorum stands behind and this node lacks, with who should have each."""

    def __init__(self) -> None:
        self._holders: dict[BlockId, tuple[NodeId, ...]] = {}
        self._turn = 0  # whom to ask first: f of the holders may keep the block to themselves

    def begin(self, block_id: BlockId, holders: tuple[NodeId, ...]) -> list[FetchBlock]:
        """Ask for a block, once."""
        if block_id in self._holders:
            return []
        self._holders[block_id] = _turned(holders, self._turn)
        return [FetchBlock(block_id, self._holders[block_id])]

    def walk(
        self, chain: Chain, block_id: BlockId, height: int, holders: tuple[NodeId, ...]
    ) -> list[FetchBlock]:
        """Ask for what is unknown on the way down from a notarized block, unless it is too far."""
        missing = chain.missing(block_id)
        if missing is None or (missing != block_id and not chain.walk_allowed(height)):
            return []
        return self.begin(missing, holders)

    def again(self) -> list[FetchBlock]:
        """Ask for everything that has not come, each time another holder first."""
        for block_id, holders in self._holders.items():
            self._holders[block_id] = _turned(holders, 1)
        return [FetchBlock(block_id, holders) for block_id, holders in self._holders.items()]

    def end(self, block_id: BlockId) -> bool:
        """A block has come: whether it was wanted."""
        return self._holders.pop(block_id, None) is not None

    def clear(self) -> None:
        """A view is over: whatever is still wanted is begun anew, with another holder first."""
        self._holders.clear()
        self._turn += 1


def _turned(holders: tuple[NodeId, ...], by: int) -> tuple[NodeId, ...]:
    first = by % max(1, len(holders))
    return holders[first:] + holders[:first]


class CatchUp:
    """Where the members of the present epoch say that they stand."""

    def __init__(self, committee: Committee, delta_ns: int) -> None:
        self.committee = committee
        self._delta_ns = delta_ns
        self._slots: dict[NodeId, tuple[int, int]] = {}
        self._lagging: dict[NodeId, tuple[int, Standing]] = {}  # since when, behind what of mine
        # Somebody is ahead, and is to hear where I stand; or was behind, and has not read my votes.
        self._is_news = False

    def follow(self, committee: Committee) -> None:
        """Another epoch begins: what those said who have left weighs nothing any more."""
        self.committee = committee
        self._slots = {peer: at for peer, at in self._slots.items() if peer in committee.stake_of}

    def is_news(self, position: PeerPosition, mine: Standing) -> bool:
        """Whether to note it may change anything, or an offer be due; see `note`."""
        peer, slot = position.peer, (position.epoch, position.view)
        told = peer not in self.committee.stake_of or slot <= self._slots.get(peer, (-1, -1))
        return not (told and peer not in self._lagging and mine.is_reached_by(position))

    def note(self, now_ns: int, position: PeerPosition, mine: Standing) -> bool:
        """Take in where a peer stands; True if it is due an offer now."""
        peer = position.peer
        if peer in self.committee.stake_of:
            slot = (position.epoch, position.view)
            self._slots[peer] = max(slot, self._slots.get(peer, slot))
        if mine.is_reached_by(position):
            was_behind = self._lagging.pop(peer, None) is not None
            self._is_news |= was_behind or mine.is_passed_by(position)
            return False
        since_ns, goal = self._lagging.get(peer, (now_ns, mine))
        if peer not in self._lagging or goal.is_reached_by(position):
            self._watch(peer, now_ns, mine)
            return False
        if now_ns - since_ns < self._delta_ns:
            return False
        self._watch(peer, now_ns, mine)
        return True

    def _watch(self, peer: NodeId, now_ns: int, mine: Standing) -> None:
        self._lagging.pop(peer, None)
        while len(self._lagging) >= PEERS_MAX:
            del self._lagging[next(iter(self._lagging))]
        self._lagging[peer] = (now_ns, mine)

    def take_news(self) -> bool:
        """Whether somebody was heard, since this was asked last, to whom my last votes matter."""
        is_news, self._is_news = self._is_news, False
        return is_news

    def ahead_of(self, epoch: int, view: int) -> set[NodeId]:
        """Validators that say they are in a later view."""
        return {peer for peer, slot in self._slots.items() if slot > (epoch, view)}
