"""Whose chain an import is given is told before anything is judged, and found out where it is not.

What is taken of a chain of the same network is tested with the demo's.
"""

from pathlib import Path

import pytest

from tests.daa_node.cli.conftest import JOB, Command, make_node


@pytest.mark.parametrize("network", [None, b"", b"\xff\xfe", b"ours"])
def test_a_directory_that_does_not_say_of_which_network_it_is_is_judged_by_its_blocks(
    command: Command, tmp_path: Path, network: bytes | None
) -> None:
    job, made, node = tmp_path / "job.yaml", tmp_path / "genesis.json", tmp_path / "node"
    job.write_text(JOB)
    record = make_node(command, tmp_path / "n")
    done = command("genesis", "create", job, "--validator", record, "--out", made, "--json")
    assert done.code == 0, done.err
    assert command("init", "--dir", node, "--join", made).code == 0
    blocks = tmp_path / "there" / "chain" / "blocks"
    blocks.mkdir(parents=True)
    (blocks / ("ab" * 32)).write_bytes(b"none")
    if network is not None:
        chain_id = done.out.partition('"chain_id": "')[2][:64].encode()
        named = chain_id + b"\n" if network == b"ours" else network
        (tmp_path / "there" / "network").write_bytes(named)
    done = command("checkpoint", "import", tmp_path / "there", "--dir", node)
    assert (done.code, "Problems: " in done.err, "is of chain" in done.err) == (1, True, False)
