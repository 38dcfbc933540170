"""Which networks have epochs that are followed by one certificate each, by their sizes alone."""

from pathlib import Path

import pytest

from daa_consensus.bft.limits import Limits
from daa_consensus.committee import CONTRIBUTORS_MAX, VALIDATORS_MAX
from daa_dag.checkpoint import vertex_bytes_max
from daa_node.agreement.config import AgreementConfig
from daa_node.checkpoints.long_epochs import HELD_BYTES_MAX, bytes_of, full_epoch_bytes
from daa_node.checkpoints.pages import Part
from daa_node.rounds.trainers import TrainersConfig
from tests.daa_node.checkpoints.little_chain import KEYS, ChainMaker, vertex_at

ROUNDS = 3


def test_no_epoch_as_it_comes_is_too_long_whatever_its_rounds_carry() -> None:
    """In the largest network, with requests and evidence as many as a set may have, in each."""
    limits = Limits(VALIDATORS_MAX, CONTRIBUTORS_MAX)
    vertex = vertex_bytes_max(CONTRIBUTORS_MAX, CONTRIBUTORS_MAX)
    most = limits.block_bytes_max + limits.result_block_bytes_max + vertex
    assert AgreementConfig().epoch_rounds * most < HELD_BYTES_MAX / 10


@pytest.mark.parametrize(
    ("validators", "contributors", "epoch_rounds", "fits"),
    [
        (4, 64, 1000, True),
        (20, TrainersConfig().contributors_max, 1000, True),
        (20, 128, 500, True),
        (20, 128, 600, False),
        (128, 128, 500, True),
        (128, 128, 1000, False),
    ],
)
def test_a_full_epoch_is_too_long_with_many_contributors_and_hundreds_of_rounds(
    validators: int, contributors: int, epoch_rounds: int, fits: bool
) -> None:
    assert (full_epoch_bytes(validators, contributors, epoch_rounds) <= HELD_BYTES_MAX) is fits


async def test_what_was_published_is_no_longer_than_what_is_reckoned(tmp_path: Path) -> None:
    maker = ChainMaker(tmp_path)
    await maker.open()
    for _ in range(ROUNDS):
        await maker.publish(await maker.make_round())
    blocks = await maker.chain.path_up(maker.genesis.id, 100)
    assert blocks is not None
    vertices = [await vertex_at(maker, height) for height in range(1, ROUNDS + 1)]
    part = Part(tuple(blocks), tuple((vertex, None) for vertex in vertices))
    reckoned = full_epoch_bytes(len(KEYS), len(KEYS), ROUNDS)
    assert reckoned / 4 < bytes_of(part) <= reckoned
