"""Training goes on while updates travel: what was trained since one's own was sealed.

    sealed --step, step, ...--> the next order --> starts from its base, moved by these steps
                                `-- the update was not merged: dropped, as all that it led to

The next round's update then holds these steps, too: they were taken from the sealed weights, before
anybody had those of the others, and are that much late. All others of a round start where they
should. A restart loses the steps and keeps what the optimiser has learnt in them. Source:
overlapping DiLoCo's communication with computation (Kale et al. 2025), where all steps of a round
are as late as a whole round.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from daa_node.tensors import Float32Array, Int64Array


@dataclass(slots=True)
class Ahead:
    """Steps of the round after `round`; vectors of shape (D,), fp32."""

    round: int  # of the update that was sealed
    sealed_D: Float32Array  # the weights then
    batches: Iterator[Int64Array]
    schedule_step: int  # of the next step, for the learning rate
    steps_max: int  # never as many as the next round has: that takes a step of its own
    steps: int = 0
    loss_sum: float = 0.0  # nats, over the steps
    values_D: Float32Array | None = None  # where it got to; None while the loop has them

    @property
    def steps_left(self) -> int:
        return self.steps_max - self.steps
