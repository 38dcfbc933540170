"""What the nodes of a simulated job train: a model of which only the size counts, or a real one.

A payload does what the trainers of all nodes do between them. Honest nodes that execute one set
reach the same bits, so it is executed once for all of them.
"""

from dataclasses import dataclass
from typing import Protocol

from daa_consensus.bft.messages import SetPayload
from daa_dag import canonical
from daa_dag.ids import BlobRoot, tagged_digest
from daa_node.seams import StateRef, SteppedState, TrainOrder
from daa_node.updates.compression.codec import sizes_of
from daa_node.updates.config import UpdatesConfig
from daa_node.updates.outer_step import DELTA_CODEC

STATE_BYTES_A_PARAMETER = 8  # weights and outer momentum, int32 each


@dataclass(frozen=True, slots=True)
class Sizes:
    """What travels, in bytes."""

    update_bytes: dict[str, int]  # by codec
    delta_bytes: int  # of one certified round
    state_bytes: int  # of a whole state: for whoever lost its disk
    parameters: int


@dataclass(frozen=True, slots=True)
class Trained:
    """One node's sealed update."""

    blob_root: BlobRoot
    loss_nats: float | None  # mean of its inner steps


class Payload(Protocol):
    """The trainers of all nodes. Nodes are numbers."""

    @property
    def sizes(self) -> Sizes: ...

    @property
    def codec(self) -> str:
        """The plan's."""

    @property
    def tokens_per_step(self) -> int: ...

    @property
    def state(self) -> StateRef:
        """The newest certified one."""

    def train(self, node: int, order: TrainOrder) -> Trained:
        """Exactly `order.steps_max` steps from the newest state; time is the caller's business."""

    def merge(self, decided: SetPayload) -> SteppedState:
        """Execute a set; what comes of it is the newest state."""

    def loss_nats(self) -> float | None:
        """On held-out examples, of the newest state; None if there is no model."""

    def forget(self, node: int) -> None:
        """The node's disk is gone, and its optimiser's moments with it."""


class VirtualPayload:
    """Updates of any size that hold nothing; their roots follow from what made them."""

    def __init__(self, sizes: Sizes, codec: str, tokens_per_step: int, seed: int) -> None:
        self.sizes = sizes
        self.codec = codec
        self.tokens_per_step = tokens_per_step
        self.state = StateRef(
            BlobRoot(tagged_digest("virtual model", [seed])),
            BlobRoot(tagged_digest("virtual momentum", [seed])),
        )

    def train(self, node: int, order: TrainOrder) -> Trained:
        value: canonical.Value = [
            order.seed,
            order.round,
            order.author,
            order.steps_max,
            order.codec,
        ]
        return Trained(BlobRoot(tagged_digest("virtual update", value)), None)

    def merge(self, decided: SetPayload) -> SteppedState:
        blobs = [offer.blob_root for offer in decided.offers]
        made = [
            BlobRoot(tagged_digest(f"virtual {what}", [before, *blobs]))
            for what, before in (
                ("model", self.state.model_root),
                ("momentum", self.state.outer_root),
                ("delta", self.state.model_root),
            )
        ]
        self.state = StateRef(made[0], made[1])
        return SteppedState(self.state, made[2])

    def loss_nats(self) -> None:
        return None

    def forget(self, node: int) -> None:
        pass


def sizes_with(updates: UpdatesConfig, parameter_count: int) -> Sizes:
    """What a model of so many parameters makes travel."""
    return Sizes(
        sizes_of(updates.codecs, parameter_count),
        DELTA_CODEC.encoded_size_bytes(parameter_count),
        parameter_count * STATE_BYTES_A_PARAMETER,
        parameter_count,
    )


def shadow_of(payload: Payload, seed: int) -> Payload:
    """The same sizes without any content: enough where only time and bytes are asked for."""
    return VirtualPayload(payload.sizes, payload.codec, payload.tokens_per_step, seed)
