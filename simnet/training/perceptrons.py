"""Real gradients: every node's own perceptron on the digits, and the integers that merge them.

The worker's own core trains and seals, the agreed outer step merges, so losses, updates and roots
are what real workers would come to with these batches and this many steps each.
"""

from functools import cached_property

import numpy as np
import torch

from daa_consensus.bft.messages import SetPayload
from daa_dag.chunking import cut, manifest_of
from daa_dag.ids import BlobRoot
from daa_node.seams import StateRef, SteppedState, TrainOrder
from daa_node.tensors import Float32Array, Int32Array, UInt8Array, grid_sizes_bytes
from daa_node.training.config import (
    DataConfig,
    InnerConfig,
    ModelConfig,
    TrainingJob,
)
from daa_node.training.core import Core
from daa_node.training.datasets.digits import Digits
from daa_node.training.genesis_state import genesis_weights
from daa_node.updates.aggregation.rule import rule_named
from daa_node.updates.compression.codec import codec_named, decode
from daa_node.updates.grid import to_float32
from daa_node.updates.outer_step import (
    Contribution,
    OuterRates,
    OuterState,
    aggregate_and_step,
)
from simnet.adversaries.poisoner import Mislabelled
from simnet.scenario import Scenario
from simnet.training.payloads import Sizes, Trained, sizes_with

BATCH = 32
CLASSES = 10  # of digits


class Perceptrons:
    """One model on the grid, and an optimiser a node."""

    tokens_per_step = BATCH  # pictures

    def __init__(self, scenario: Scenario, mislabelled: frozenset[int] = frozenset()) -> None:
        """Nodes of `mislabelled` train on flipped labels."""
        torch.set_num_threads(1)  # sums in one order, on any machine
        work = scenario.work
        self._job = TrainingJob(
            model=ModelConfig(kind="mlp", depth=1, width=32),
            data=DataConfig(kind="digits"),
            inner=InnerConfig(
                batch_size=BATCH, total_steps=max(1, work.rounds * work.inner_steps_max)
            ),
            updates=scenario.work.updates,
            seed=scenario.seed,
        )
        self.codec = work.codec
        data = self._job.data
        self._examples = Digits(data.heldout_every, data.heldout_block_items)
        self._mislabelled = mislabelled
        self._cores: dict[int, Core] = {}
        self._blobs: dict[BlobRoot, UInt8Array] = {}
        weights_D = genesis_weights(self._job.model, self._job.seed)
        self._outer = OuterState(weights_D, np.zeros_like(weights_D))
        self._chunks = cut(grid_sizes_bytes(self._job.model.tensors()))
        self.state = self._state_ref()

    @cached_property
    def sizes(self) -> Sizes:
        return sizes_with(self._job.updates, self._job.model.parameter_count())

    def train(self, node: int, order: TrainOrder) -> Trained:
        if node not in self._cores:
            self._cores[node] = self._new_core(node in self._mislabelled)
        sealed = self._cores[node].train_and_seal(order, self._outer.weights_D)
        return Trained(self.put(sealed.blob), sealed.trained.loss_nats)

    def put(self, blob: UInt8Array) -> BlobRoot:
        """Keep an update until the round is merged."""
        root = manifest_of(blob.data, cut([blob.size])).root
        self._blobs[root] = blob
        return root

    def decoded(self, root: BlobRoot, codec: str) -> Float32Array:
        """An update of this round, as floats."""
        count = self.sizes.parameters
        return to_float32(decode(codec_named(codec), self._blobs[root], 0, count, count))

    def merge(self, decided: SetPayload) -> SteppedState:
        contributions = [
            Contribution(self._blobs[offer.blob_root], offer.codec, weight)
            for offer, weight in zip(decided.offers, decided.weights, strict=True)
        ]
        updates = self._job.updates
        rates = OuterRates(updates.outer_lr, updates.outer_momentum)
        out = OuterState(
            np.empty_like(self._outer.weights_D), np.empty_like(self._outer.momentum_D)
        )
        delta = np.empty(self.sizes.delta_bytes, np.uint8)
        rule = rule_named(decided.rule)
        aggregate_and_step(self._outer, contributions, rule, decided.f_agg, rates, out, delta)
        self._outer, self.state = out, self._state_ref_of(out)
        self._blobs.clear()
        return SteppedState(self.state, manifest_of(delta.data, cut([delta.size])).root)

    def loss_nats(self) -> float:
        if not self._cores:
            self._cores[0] = self._new_core(0 in self._mislabelled)
        core = next(iter(self._cores.values()))  # held-out labels are right for everybody
        return core.evaluate(self._outer.weights_D)

    def forget(self, node: int) -> None:
        self._cores.pop(node, None)

    def _new_core(self, mislabelled: bool) -> Core:
        examples = Mislabelled(self._examples, CLASSES) if mislabelled else self._examples
        # Time stands still inside: how long steps take is the world's business.
        return Core(self._job, examples, torch.device("cpu"), lambda: 0.0)

    def _state_ref(self) -> StateRef:
        return self._state_ref_of(self._outer)

    def _state_ref_of(self, outer: OuterState) -> StateRef:
        def root(vector_D: Int32Array) -> BlobRoot:
            return manifest_of(vector_D.data, self._chunks).root

        return StateRef(root(outer.weights_D), root(outer.momentum_D))
