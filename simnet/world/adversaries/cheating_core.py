"""What trains in a cheat's worker: the real core, of an author who shows other than what it did.

Everywhere, in all that it trains:
    skips_steps         every second step is taken back: nothing moves, and it counts
    rounds_weights      after each step the weights are rounded to bfloat16
    doubles_gradients   the optimiser sees twice the gradient; AdamW hardly knows that from the real
                        one, but its moments do
    wrong_batches       those of an author who does not exist
At the round's edges:
    stale_base          trains from the base of the round before, and shows the newest at the start
    copies_update       offers another's update for its own (copying_trainer)
As little as can be:
    skips_in_the_middle one segment, every second step of it
    skips_one_step      of the round
    rounds_once         the weights, in the middle of a round
    stretches_one_step  goes a little further in one step of the round: among many that drowns
    moments_only        pushes harder where it went: the first moment, once, between two segments
    doubles_update      trains honestly and seals twice as much
    drops_what_it_owes  trains and seals honestly, and forgets what sealing left
With foresight:
    knows_the_lot       guesses what the lot will draw of it, by all that it knows while it trains,
                        trains that segment honestly, and skips every second step of the others

What a cheat shows begins where it must and goes on from its own last round, its steps are counted
right, and until one update of its own is merged it is honest: what tells of it is where its steps
lead, or its seal. It checks others honestly, and opens its segments as if it had
trained them: most cheats' own last step does not follow then, and they open nothing.
"""

from collections.abc import Callable
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING

import numpy as np

from daa_consensus.bft.messages import OfferBody
from daa_dag.ids import DIGEST_BYTES, BlobRoot, BlockId, Digest, NodeId, VertexId, digest_of
from daa_node.seams import SegmentOrder, TrainOrder
from daa_node.spot_checks.lot import Lot, draw
from daa_node.tensors import Float32Array, Int32Array
from daa_node.training.boundaries import Boundary, Carried, boundary_steps
from daa_node.updates.compression.codec import codec_named, decode, encode
from daa_node.updates.grid import to_float32
from simnet.world.scenario import Cheat

if TYPE_CHECKING:  # a daemon's process must not load torch
    from daa_node.training.core import Core, OnBoundary, SealedTraining

Meddle = Callable[[int, Boundary], None]  # after how many steps; the arrays are training's own

STRETCH = np.float32(0.006)  # a fifth more than judges tolerate of a step
HALF_ULP, LOW_BITS = np.uint32(0x7FFF), np.uint32(0xFFFF)  # of a bfloat16 in an fp32


class CheatingCore:
    """A Core to its worker."""

    def __init__(self, inner: "Core", cheat: Cheat) -> None:
        self._inner = inner
        self._cheat = cheat
        self._base_D: Int32Array | None = None  # of its last round
        self.device = inner.device
        self.check_segment, self.evaluate = inner.check_segment, inner.evaluate
        self.canary = inner.canary
        self._stretched = 0  # after how many steps of its last round
        self.inner_state, self.set_inner_state = inner.inner_state, inner.set_inner_state
        self.train_on, self.take_ahead = inner.train_on, inner.take_ahead
        self.set_ahead = inner.set_ahead

    def train_and_seal(
        self,
        order: TrainOrder,
        base_D: Int32Array,
        is_cancelled: Callable[[], bool] = lambda: False,
        on_boundary: "OnBoundary" = lambda _boundary: None,
    ) -> "SealedTraining":
        """As Core does, but for the cheat."""
        stale_D, self._base_D = self._base_D, base_D.copy()
        train = self._inner.train_and_seal
        if order.merged_round < 0 or stale_D is None:
            return train(order, base_D, is_cancelled, on_boundary)
        match self._cheat:
            case "copies_update":
                return train(order, base_D, is_cancelled, on_boundary)
            case "wrong_batches":
                other = replace(order, author=NodeId(digest_of(order.author)))
                return train(other, base_D, is_cancelled, on_boundary)
            case "stale_base":
                shown = _with_first(on_boundary, to_float32(base_D))
                return train(order, stale_D, is_cancelled, shown)
            case "doubles_gradients":
                self._scale_moments(0.5)
                doubled = train(order, base_D, is_cancelled, lambda b: on_boundary(_pushed(b, 2.0)))
                self._scale_moments(2.0)
                return replace(doubled, end=self._end_of(doubled))
            case "doubles_update":
                return _doubled(train(order, base_D, is_cancelled, on_boundary), order.codec)
            case "drops_what_it_owes":
                sealed = train(order, base_D, is_cancelled, on_boundary)
                return self._without_debt(sealed)
            case _:
                meddle = _meddle(self._cheat, order)
                self._stretched = _middle(order) + 1
                each = replace(order, segment_steps=1)
                passed = by_step(order.segment_steps, on_boundary, meddle)
                return train(each, base_D, is_cancelled, passed)

    def open_segment(
        self,
        order: SegmentOrder,
        start: Boundary,
        on_boundary: "OnBoundary",
        is_cancelled: Callable[[], bool] = lambda: False,
    ) -> None:
        """As if it had trained them: what it has stretched it stretches again."""
        shown = on_boundary
        if self._cheat == "stretches_one_step" and not order.exact:
            stretch = _stretching(
                lambda steps: order.step + steps == self._stretched, start.weights_D.copy()
            )
            taken = count(1)

            def stretched(boundary: Boundary) -> None:
                stretch(next(taken), boundary)
                on_boundary(boundary)

            shown = stretched
        self._inner.open_segment(order, start, shown, is_cancelled)

    def _scale_moments(self, factor: float) -> None:
        """As if every gradient so far had been so many times what it was: by a power of two."""
        state = self._inner.inner_state()
        settled, tried = (_scaled(each, factor) for each in (state.settled, state.tried))
        self._inner.set_inner_state(replace(state, settled=settled, tried=tried))

    def _end_of(self, sealed: "SealedTraining") -> Boundary:
        """With the moments as they are now."""
        tried = self._inner.inner_state().tried
        return replace(sealed.end, first_D=tried.first_D, second_D=tried.second_D)

    def _without_debt(self, sealed: "SealedTraining") -> "SealedTraining":
        state = self._inner.inner_state()
        nothing_D = np.zeros_like(state.tried.residual_D)
        tried = replace(state.tried, residual_D=nothing_D)
        self._inner.set_inner_state(replace(state, tried=tried))
        return replace(sealed, end=replace(sealed.end, residual_D=nothing_D))


def by_step(segment_steps: int, on_boundary: "OnBoundary", meddle: Meddle) -> "OnBoundary":
    """Meddles after each step but the last, and shows what becomes of it at each boundary."""
    taken = count()

    def passed(boundary: Boundary) -> None:
        steps = next(taken)
        meddle(steps, boundary)
        if steps % segment_steps == 0:
            on_boundary(boundary)

    return passed


def _meddle(cheat: Cheat, order: TrainOrder) -> Meddle:
    each, middle = order.segment_steps, _middle(order)
    match cheat:
        case "skips_steps":
            return _taking_back(lambda steps: steps % 2 == 1)
        case "skips_in_the_middle":
            return _taking_back(
                lambda steps: middle < steps <= middle + each and (steps - middle) % 2 == 1
            )
        case "knows_the_lot":
            segment = _guessed(order)
            return _taking_back(
                lambda steps: (steps - 1) // each != segment and (steps - 1) % each % 2 == 0
            )
        case "skips_one_step":
            return _taking_back(lambda steps: steps == middle + 1)
        case "rounds_weights":
            return lambda steps, boundary: _round(boundary) if steps else None
        case "rounds_once":
            return lambda steps, boundary: _round(boundary) if steps == middle + 1 else None
        case "stretches_one_step":
            return _stretching(lambda steps: steps == middle + 1)
        case "moments_only":
            return lambda steps, boundary: _push(boundary) if steps == middle else None
        case _:
            raise AssertionError(f"{cheat} needs no meddling with steps")


def _middle(order: TrainOrder) -> int:
    """Where a segment begins."""
    each = order.segment_steps
    return each * (-(-order.steps_max // each) // 2)


def _guessed(order: TrainOrder) -> int:
    """The segment that the lot draws, as far as its author can know before all have trained.

    Nobody knows which block will decide the set, nor what we shall have offered by then. Any will
    do for a lot that does not depend on them.
    """
    boundaries = len(boundary_steps(order.steps_max, order.segment_steps))
    unknown = Digest(bytes(DIGEST_BYTES))
    offer = OfferBody(
        order.round,
        order.author,
        VertexId(unknown),
        BlobRoot(unknown),
        *(0, order.codec, order.steps_max, 0, 0, 0, 0),
        (unknown,) * boundaries,
    )
    (drawn,) = draw(Lot((1, 1), 0), order.seed, BlockId(unknown), [offer])
    return drawn.segment


def _taking_back(is_skipped: Callable[[int], bool]) -> Meddle:
    """Of a step that is skipped nothing stays but its number."""
    before: list[Float32Array] = []

    def meddle(steps: int, boundary: Boundary) -> None:
        live = boundary.weights_D, boundary.first_D, boundary.second_D
        if steps and is_skipped(steps):
            for values_D, kept_D in zip(live, before, strict=True):
                values_D[:] = kept_D
        before[:] = [values_D.copy() for values_D in live]

    return meddle


def _stretching(is_stretched: Callable[[int], bool], start_D: Float32Array | None = None) -> Meddle:
    """Such a step leads as far beyond where it should as STRETCH says."""
    before = [] if start_D is None else [start_D]

    def meddle(steps: int, boundary: Boundary) -> None:
        weights_D = boundary.weights_D
        if steps and is_stretched(steps):
            weights_D += STRETCH * (weights_D - before[0])
        before[:] = [weights_D.copy()]

    return meddle


def _round(boundary: Boundary) -> None:
    """The weights to bfloat16, to nearest even."""
    bits_D = boundary.weights_D.view(np.uint32)
    bits_D += HALF_ULP + ((bits_D >> np.uint32(16)) & np.uint32(1))
    bits_D &= ~LOW_BITS


def _push(boundary: Boundary) -> None:
    boundary.first_D[:] *= np.float32(2)


def _pushed(boundary: Boundary, factor: float) -> Boundary:
    """As if every gradient so far had been so many times what it was."""
    return replace(
        boundary,
        first_D=boundary.first_D * np.float32(factor),
        second_D=boundary.second_D * np.float32(factor**2),
    )


def _scaled(carried: Carried, factor: float) -> Carried:
    return replace(
        carried,
        first_D=carried.first_D * np.float32(factor),
        second_D=carried.second_D * np.float32(factor**2),
    )


def _with_first(on_boundary: "OnBoundary", weights_D: Float32Array) -> "OnBoundary":
    """The first boundary shows these weights."""
    places = count()

    def shown(boundary: Boundary) -> None:
        is_first = next(places) == 0
        on_boundary(replace(boundary, weights_D=weights_D) if is_first else boundary)

    return shown


def _doubled(sealed: "SealedTraining", name: str) -> "SealedTraining":
    codec, size = codec_named(name), sealed.end.weights_D.size
    sent_D = to_float32(decode(codec, sealed.blob, 0, size, size))
    return replace(sealed, blob=encode(codec, sent_D * np.float32(2)))
