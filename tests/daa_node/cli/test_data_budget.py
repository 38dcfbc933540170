"""A real daemon with a megabyte a day: what a stranger gets of it, and what goes on."""

from pathlib import Path

import pytest

from daa_node import genesis
from daa_node.cli.joining import Visit
from daa_node.errors import Unavailable
from daa_node.genesis import GENESIS_BYTES_MAX, GENESIS_REQUEST
from daa_node.identity.keys import NodeKeys
from daa_node.network.link_limits import STRANGERS_SHARE
from daa_node.rounds.config import EndConfig
from daa_node.seams import Address
from tests.daa_node.cli.test_daemon import TINY, network, running, status, until

pytestmark = pytest.mark.usefixtures("warm")

BUDGET_BYTES = 1_000_000
JOB = TINY.model_copy(update={"end": EndConfig(rounds=100_000)})


async def test_a_stranger_gets_a_quarter_of_the_day_and_the_relay_carries_nothing_beside(
    tmp_path: Path,
) -> None:
    (node,) = network(tmp_path, 1, JOB)
    plain = (node / "config.yaml").read_text()
    (node / "config.yaml").write_text(f"{plain}  relay: true\n  data_gb_a_day: 0.001\n")
    made = genesis.parse("g", (node / "genesis.json").read_text())
    with running(node):
        began = until(node, "a round is over", lambda said: said["height"] > 0)
        assert began["link"]["spent_bytes_today"] == 0  # nobody else is there

        async def ask_much(visit: Visit) -> int:
            served_bytes, why = 0, ""
            assert await visit._transport.circuits.reserve(visit.peer_id)
            while served_bytes < BUDGET_BYTES and not why:
                try:
                    answer = await visit.ask(GENESIS_REQUEST, b"", GENESIS_BYTES_MAX)
                    served_bytes += len(answer)
                except Unavailable as refusal:
                    why = str(refusal)
            assert "today's data" in why
            with pytest.raises(Unavailable, match="nearly spent"):
                await visit._transport.circuits.reserve(visit.peer_id)
            return served_bytes

        asker = Visit(Address(began["addresses"][0]), made.chain_id, NodeKeys.generate())
        served_bytes = await asker.during(ask_much)
        share = STRANGERS_SHARE * BUDGET_BYTES
        page_bytes = (node / "genesis.json").stat().st_size
        assert share / 2 < served_bytes < share + page_bytes
        said = status(node)
        assert said is not None
        assert said["link"]["spent_bytes_today"] == share
        assert said["link"]["budget"] == "open"
        until(node, "its rounds go on", lambda said: said["height"] > began["height"])
