"""Whose work of a decided set is checked, which part of it, and by whom.

Drawn from the parent's seed and the id of the block that decided the set: everybody draws the same,
and nobody can while it trains, since the block names what all others have offered. Its leader knows
it first, and may try other blocks until one draws none of its own work: it leads by its share of
the stake, and what it leaves out others refuse (docs/consensus.md).
"""

from collections.abc import Sequence
from dataclasses import dataclass

from daa_consensus.bft.messages import OfferBody
from daa_dag.ids import BlockId, Digest, NodeId, tagged_digest

DRAW_BITS = 64


@dataclass(frozen=True, slots=True)
class Lot:
    """How much is drawn: a share of contributions, [numerator, denominator], and checkers each."""

    share: tuple[int, int]
    checkers: int


@dataclass(frozen=True, slots=True)
class Draw:
    """One segment of an offer to recompute: the steps between two boundaries."""

    offer: OfferBody
    segment: int  # from its boundary of that index to the next one
    checkers: tuple[NodeId, ...]  # other authors of the set; fewer where there are fewer


def draw(lot: Lot, seed: Digest, set_block: BlockId, offers: Sequence[OfferBody]) -> list[Draw]:
    """The checks of one decided set, in the order of its offers. `seed` is the parent vertex's.

    Nobody draws an offer whose author has committed to no segment.
    """
    drawn = []
    for offer in offers:
        segments = len(offer.snapshot_roots) - 1
        if segments < 1 or not _happens(_number(seed, set_block, offer, "share"), lot.share):
            continue
        segment = _number(seed, set_block, offer, "segment") % segments
        others = [other.author for other in offers if other.author != offer.author]
        others.sort(key=lambda author: _digest(seed, set_block, offer, "checker", author))
        drawn.append(Draw(offer, segment, tuple(others[: lot.checkers])))
    return drawn


def _happens(number: int, share: tuple[int, int]) -> bool:
    numerator, denominator = share
    return number * denominator < numerator << DRAW_BITS


def _number(seed: Digest, set_block: BlockId, offer: OfferBody, purpose: str) -> int:
    return int.from_bytes(_digest(seed, set_block, offer, purpose)[: DRAW_BITS // 8])


def _digest(
    seed: Digest, set_block: BlockId, offer: OfferBody, purpose: str, author: NodeId | None = None
) -> bytes:
    return tagged_digest("spot-check", [seed, set_block, offer.root, purpose, author])
