"""A whole daemon that lies: an honest one's parts, with its lies between its seams and the world.

    run_node(disguised(parts, liar))

    messages out and in     Transport, the votes' streams    -> Behaviour.sends, hears
    pages that it serves   Transport, the requests' streams -> late, or changed (errands)
    blobs that it serves   BulkTransport                    -> Behaviour.shelf (lying_blobs), or a
                                                               puppet's manners
    its updates            Trainer                          -> poisons, free rides (lying_trainer),
                                                               copies (copying_trainer)
    its judgement          Trainer                          -> others' work is false (framers)
    its training           in its worker, below the seams   -> cheats (cheating_core)
    anything else          a task beside the daemon's own   -> garbage on every protocol (babbler),
                                                               or statements out of the grammar
                                                               (errands)

The node above the seams is honest code and knows nothing of it: it may even disagree with what it
is made to say. It signs its lies with its own keys, whose signer it passes by. Every fidelity that
runs whole daemons uses this one door; a Liar can be sent to another process.
"""

import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import trio

from daa_dag.ids import NodeId
from daa_node.errors import PeerFault
from daa_node.identity.keys import NodeKeys
from daa_node.node_parts import NodeParts
from daa_node.seams import BulkTransport, PeerId
from simnet.world.adversaries.babbler import Babble, Babbler, garbled
from simnet.world.adversaries.behaviour import Behaviour, Shelf
from simnet.world.adversaries.copying_trainer import CopyingTrainer
from simnet.world.adversaries.errands import Errands, answer
from simnet.world.adversaries.framers import FramingTrainer, LateAccuser
from simnet.world.adversaries.liars import BEHAVIOURS
from simnet.world.adversaries.lying_blobs import LyingBulk
from simnet.world.adversaries.lying_trainer import LyingTrainer
from simnet.world.adversaries.manners import Manners
from simnet.world.adversaries.message_filter import (
    KeysOf,
    LyingTransport,
    MessageFilter,
    Rewrite,
    made_up,
)
from simnet.world.adversaries.puppet import Puppet
from simnet.world.determinism import Streams
from simnet.world.scenario import AdversaryConfig, Cheat, Scenario


@dataclass(frozen=True, slots=True)
class Liar:
    """Who lies, and how."""

    config: AdversaryConfig
    seed: int  # of all its chance
    league: frozenset[NodeId]  # whom it does not count among the honest, itself included
    body: int = 0  # which of the daemons under its key
    keys_of: KeysOf = made_up  # strangers that it makes up

    @property
    def trains_mislabelled(self) -> bool:
        """Whether its worker is to see wrong labels: no seam of the daemon can do that."""
        return self.config.kind == "poisoner" and self.config.poison == "label_flip"

    @property
    def cheat(self) -> Cheat | None:
        """What its worker does instead of training as it shows; no seam of the daemon knows."""
        return self.config.cheat if self.config.kind == "cheat" else None


def liars_of(
    scenario: Scenario, keys: Sequence[NodeKeys], keys_of: KeysOf = made_up
) -> dict[int, Liar]:
    """Those of a scenario by number, all of them in league; `keys` by number, too."""
    chosen, streams = scenario.liars(), Streams(scenario.seed)
    league = frozenset(keys[node].node_id for node in chosen)
    return {
        node: Liar(config, streams.number(f"liar {node}"), league, keys_of=keys_of)
        for node, config in chosen.items()
    }


class Honest(Behaviour):
    """What a poisoner, a free rider or a framer is to the agreement."""


def behaviour_of(config: AdversaryConfig) -> Behaviour:
    """A fresh behaviour of that kind."""
    return BEHAVIOURS.get(config.kind, Honest)()


def bodies_of(liar: Liar) -> int:
    """How many daemons run under the liar's key, each honest but for its lies."""
    return behaviour_of(liar.config).daemons


def disguised(parts: NodeParts, liar: Liar) -> NodeParts:
    """The parts of the daemon that lies."""
    if liar.config.kind == "twin":
        return parts  # all of it is honest code
    behaviour, chance = behaviour_of(liar.config), random.Random(liar.seed)
    message_filter = MessageFilter(parts.genesis, parts.keys, behaviour, chance, liar.keys_of)

    asks: Rewrite | None = None
    answers: Rewrite | None = None
    errands: Errands | None = None
    manners: Manners | None = None
    outside: Callable[[], Awaitable[None]] | None = None
    if isinstance(behaviour, Puppet):
        manners = Manners.drawn(random.Random(liar.seed + 1))
        errands = Errands(parts.transport, parts.genesis.chain_id, parts.keys, behaviour, manners)
        answers, outside = partial(answer, behaviour, manners), errands.run
    elif isinstance(behaviour, Babbler):
        asks = answers = partial(garbled, chance)
        outside = Babble(parts.transport, parts.genesis.chain_id, chance).run

    elif isinstance(behaviour, LateAccuser):
        asks, outside = behaviour.asks, partial(behaviour.run, parts.transport)

    def shelf_of(asker: NodeId) -> Shelf:
        return behaviour.shelf if manners is None else manners.shelf_of(asker)

    def make_bulk(
        node_of: Callable[[PeerId], NodeId | None],
        on_fault: Callable[[PeerId, PeerFault], None],
    ) -> BulkTransport:
        honest = parts.make_bulk(node_of, on_fault)
        if errands is not None:
            errands.bulk = honest
        is_open = manners is None and behaviour.shelf is Shelf.OPEN
        return honest if is_open else LyingBulk(honest, shelf_of, chance)

    async def start_outside(nursery: trio.Nursery) -> None:
        await parts.start_outside(nursery)
        if outside is not None:
            nursery.start_soon(outside)

    hangs_up_after = None if manners is None else manners.hangs_up_after
    made = replace(
        parts,
        transport=LyingTransport(parts.transport, message_filter, asks, answers, hangs_up_after),
        make_bulk=make_bulk,
        start_outside=start_outside,
    )
    match liar.config.kind:
        case "poisoner":
            lying = LyingTrainer(parts, liar.config.poison, liar.league, chance)
            return replace(made, trainer=lying)
        case "free_rider":
            lying = LyingTrainer(parts, None, frozenset({parts.keys.node_id}), chance)
            return replace(made, trainer=lying)
        case "cheat" if liar.cheat == "copies_update":
            return replace(made, trainer=CopyingTrainer(parts))
        case "framer" | "late_accuser":
            return replace(made, trainer=FramingTrainer(parts))
        case _:
            return made
