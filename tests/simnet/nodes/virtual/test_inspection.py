"""What an operator's commands say of a chain's files: of sound ones, and of damaged ones."""

import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from daa_node.checkpoints import listing, own_chain, packing
from daa_node.checkpoints.layout import exec_name
from daa_node.checkpoints.rows import HISTORY
from daa_node.checkpoints.summary import SUMMARY
from daa_node.cli import checkpoint, checkpoint_diff, checkpoint_export, checkpoint_log
from daa_node.cli.data_directory import STORE_VERSION
from daa_node.errors import StorageFailed
from daa_node.genesis import chain_facts
from simnet.nodes.virtual import inspection, shelves
from simnet.nodes.virtual.cluster import Cluster
from simnet.nodes.virtual.world import run_script, run_virtual
from simnet.world.determinism import Trace
from simnet.world.scenario import Scenario

SCENARIO = Scenario.model_validate(
    {
        "name": "inspected",
        "fidelity": "light",
        "nodes": [{"count": 1}],
        "work": {"kind": "training", "rounds": 3, "inner_steps_max": 1, "snapshot_every": 2},
    }
)
LOOKS = 40


def looked_into(tmp_path: Path, is_promised: bool = False) -> list[str | None]:
    """What so many looks at the chain of a lone daemon come to, each at a copy of its own.

    `is_promised`: the headers make a vertex final that is not here yet.
    """
    found: list[str | None] = []

    async def script(cluster: Cluster) -> None:
        cluster.start()
        assert await cluster.until_done(60)
        facts = chain_facts(cluster.genesis)
        tip = cluster.chain(0)[-1]
        proof = f"certificates/{exec_name(tip.vertex_id)}"
        unnamed = {f"chain/{name}" for name in (f"vertices/{tip.vertex_id.hex()}", proof)}
        for look in range(LOOKS):
            root = tmp_path / str(look)
            for path, payload in cluster.machines[0].disk.files.items():
                if is_promised and path in unnamed:
                    continue
                (root / path).parent.mkdir(parents=True, exist_ok=True)
                (root / path).write_bytes(payload)
            found.append(inspection.inspected(root / "chain", facts, Random(look)))

    assert run_script(SCENARIO, Trace(), script).ok
    return found


def test_what_is_damaged_is_found_and_what_is_sound_exports(tmp_path: Path) -> None:
    assert looked_into(tmp_path) == [None] * LOOKS


def test_of_a_chain_that_promises_more_nobody_is_given_the_tip(tmp_path: Path) -> None:
    for told in looked_into(tmp_path, is_promised=True):
        assert told is None or "tip" not in told


def test_damage_that_nobody_finds_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    harmless = ("touched", lambda path, _chance: os.utime(path))
    monkeypatch.setattr(inspection, "DAMAGES", (harmless,))
    found = looked_into(tmp_path)
    assert all(told is not None and told.startswith("touched: nobody finds") for told in found)


def test_commands_go_by_what_a_daemon_has_left_and_judge_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(packing, "LOOSE_FILES_MAX", 10)

    async def script(cluster: Cluster) -> None:
        cluster.start()
        assert await cluster.until_done(60)
        for path, payload in cluster.machines[0].disk.files.items():
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).write_bytes(payload)
        (tmp_path / "genesis.json").write_text(cluster.genesis.as_text())
        (tmp_path / "VERSION").write_text(f"{STORE_VERSION}\n")

    # signatures of a light one are none beyond it
    signed = SCENARIO.model_copy(update={"fidelity": "trio"})
    assert run_script(signed, Trace(), script).ok

    def told(*commands: Callable[[], None]) -> list[dict[str, Any]]:
        for ask in commands:
            ask()
        return [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    def ask_all(out: Path) -> list[dict[str, Any]]:
        wanted = checkpoint_log.Wanted("tip", 2, graph=False, svg=None)
        return told(
            lambda: checkpoint_log.log(tmp_path, wanted, as_json=True),
            lambda: checkpoint.show(tmp_path, "2", as_json=True),
            lambda: checkpoint_diff.diff(tmp_path, "1", "tip", as_json=True),
            lambda: checkpoint_export.export(tmp_path, "tip", "safetensors", out, as_json=True),
        )

    def judged(*_: object) -> None:
        raise AssertionError("all of the chain is read")

    with monkeypatch.context() as patch:
        patch.setattr(own_chain, "certified_chain", judged)
        patch.setattr(listing, "view_chain", judged)
        quick = ask_all(tmp_path / "one")
        (tmp_path / "work" / HISTORY / SUMMARY).unlink()
        with pytest.raises(AssertionError, match="all of the chain"):
            ask_all(tmp_path / "none")
    slow = ask_all(tmp_path / "other")
    assert [quick[3].pop("file"), slow[3].pop("file")] == [
        str(tmp_path / name) for name in ("one", "other")
    ]
    assert quick == slow
    assert (tmp_path / "one").read_bytes() == (tmp_path / "other").read_bytes()


def test_where_no_copy_can_be_written_the_run_ends_with_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shelves, "INSPECTED_SHARE", 1.0)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    words = f"cannot copy a chain to {tmp_path}/gone, to inspect it there: No such file"
    with pytest.raises(StorageFailed, match=words):
        run_virtual(SCENARIO, Trace())
