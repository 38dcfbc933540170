"""The libraries' time and chance are the run's own, and their own again afterwards."""

import random
import time

import libp2p.kad_dht.routing_table
import libp2p.pubsub.gossipsub
import trio
from libp2p.network.swarm import Swarm
from libp2p.peer.id import ID

from simnet.nodes.virtual import scheduling
from simnet.nodes.virtual.third_party import EPOCH_S, subdued
from simnet.world.determinism import Streams

GOSSIPSUB = vars(libp2p.pubsub.gossipsub)
ROUTING_TABLE = vars(libp2p.kad_dht.routing_table)


def test_libp2p_reads_virtual_time_and_draws_from_the_seed() -> None:
    drawn = []

    async def main(_: scheduling.Processes) -> None:
        await trio.sleep(90)
        assert GOSSIPSUB["time"].time() == EPOCH_S + 90
        drawn.append(GOSSIPSUB["random"].sample(range(1000), 5))
        drawn.append(ROUTING_TABLE["secrets"].randbelow(1 << 64))

    for seed in (1, 1, 2):
        with subdued(Streams(seed)):
            scheduling.run(main, seed)
    assert drawn[:2] == drawn[2:4] != drawn[4:]


def test_a_peer_ids_hash_is_the_same_in_every_process() -> None:
    with subdued(Streams(0)):
        assert hash(ID(bytes(range(38)))) == int.from_bytes(bytes(range(31, 38)))


def test_everything_is_undone_even_after_a_failure() -> None:
    names = vars(ID)["__hash__"], vars(Swarm)["_best_connection"]
    try:
        with subdued(Streams(0)):
            raise RuntimeError
    except RuntimeError:
        assert GOSSIPSUB["time"] is time
        assert GOSSIPSUB["random"] is random
        assert (vars(ID)["__hash__"], vars(Swarm)["_best_connection"]) == names
