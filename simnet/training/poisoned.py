"""Real gradients, of which some nodes offer something else: poisoners and free riders.

Poisoners are in league and see every honest update that was sealed before theirs: of the round, or
of the one before for those who are first. What they offer passes the checks that every receiver
makes: what does not is refused before it is acknowledged, and no round ever sees it.
"""

from collections.abc import Mapping

import numpy as np

from daa_consensus.bft.messages import SetPayload
from daa_node.errors import UserError
from daa_node.seams import StateRef, SteppedState, TrainOrder
from daa_node.tensors import Float32Array
from daa_node.updates.compression.codec import codec_named, encode
from simnet.adversaries.chosen import chosen_liars
from simnet.adversaries.free_rider import nothing, whisper
from simnet.adversaries.poisoner import Sight, poisoned_blob
from simnet.determinism import Streams
from simnet.scenario import Poison, Scenario
from simnet.training.payloads import Sizes, Trained
from simnet.training.perceptrons import Perceptrons

REFUSED: frozenset[Poison] = frozenset({"nan"})  # by the codec's check, at every receiver


class Poisoned:
    """A Payload around the honest one."""

    def __init__(self, scenario: Scenario) -> None:
        streams = Streams(scenario.seed)
        self._poisons, self._riders = liars_of(scenario, streams)
        flips = frozenset(n for n, poison in self._poisons.items() if poison == "label_flip")
        self._honest = Perceptrons(scenario, flips)
        self._chance = np.random.default_rng(int.from_bytes(streams.bytes("poison", 8)))
        self._seen: list[Float32Array] = []  # honest updates of the open round
        self._seen_before: list[Float32Array] = []  # and of the one before

    @property
    def sizes(self) -> Sizes:
        return self._honest.sizes

    @property
    def codec(self) -> str:
        return self._honest.codec

    @property
    def tokens_per_step(self) -> int:
        return self._honest.tokens_per_step

    @property
    def state(self) -> StateRef:
        return self._honest.state

    def train(self, node: int, order: TrainOrder) -> Trained:
        if node in self._riders:
            like_D = self._seen[-1] if self._seen else nothing(self.sizes.parameters)
            blob = encode(codec_named(order.codec), whisper(like_D, self._chance))
            return Trained(self._honest.put(blob), None)
        trained = self._honest.train(node, order)
        own_D = self._honest.decoded(trained.blob_root, order.codec)
        if node not in self._poisons:
            self._seen.append(own_D)
            return trained
        known = self._seen if len(self._seen) > 1 else self._seen_before or [own_D]
        sight = Sight(own_D, np.stack(known), len(self._poisons), self._chance)
        blob = poisoned_blob(self._poisons[node], sight, codec_named(order.codec))
        return Trained(self._honest.put(blob), trained.loss_nats)

    def merge(self, decided: SetPayload) -> SteppedState:
        self._seen_before, self._seen = self._seen, []
        return self._honest.merge(decided)

    def loss_nats(self) -> float:
        return self._honest.loss_nats()

    def forget(self, node: int) -> None:
        self._honest.forget(node)


def liars_of(scenario: Scenario, streams: Streams) -> tuple[Mapping[int, Poison], frozenset[int]]:
    """Poisoners with their poison, and free riders. Raises UserError for any other kind."""
    poisons: dict[int, Poison] = {}
    riders: set[int] = set()
    for node, adversary in chosen_liars(scenario, streams).items():
        match adversary.kind:
            case "free_rider":
                riders.add(node)
            case "poisoner" if adversary.poison in REFUSED:
                raise UserError(f"{adversary.poison} is refused before the Ack: no round sees it")
            case "poisoner":
                poisons[node] = adversary.poison
            case _:
                raise UserError(f"training has poisoners and free riders, no {adversary.kind}")
    return poisons, frozenset(riders)
