"""Whatever a disk or a stranger has done to a directory: one clear error, or none, and no loss.

A few of very many cases; `python -m tests.daa_node.cli.damaged_node D 0 1000` tries more.
"""

import json
import os
import shutil
from pathlib import Path

import pytest

from tests.daa_node.checkpoints.little_chain import RULES, TENSORS
from tests.daa_node.cli.damaged_node import Trial, as_little_chain, asked, make_pair

SEEDS = (5, 18, 21, 29, 32, 56, 74, 113)
COMMANDS_A_CASE = 4  # each with others


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A node that has a past, and one of the same network that has none."""
    directory = tmp_path_factory.mktemp("pair")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _file: None)
        make_pair(directory)
    return directory


def test_each_damage_ends_in_one_error_or_none_and_loses_nothing_that_could_be_read(
    pair: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    as_little_chain(monkeypatch)
    for place, seed in enumerate(SEEDS):
        trial = Trial(pair, tmp_path / str(seed), seed)
        first = place * COMMANDS_A_CASE
        assert list(trial.faults(range(first, first + COMMANDS_A_CASE))) == [], trial.case
        shutil.rmtree(tmp_path / str(seed))


def test_the_newest_vertices_are_listed_and_how_many_there_are(
    pair: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    as_little_chain(monkeypatch)
    words = ("checkpoint", "list", "--json", "--dir", pair / "node")
    listed, others = asked(*words), asked(*words, "-n", 2)
    assert (listed[0], listed[2]) == (0, "")
    rows = json.loads(listed[1])["vertices"]
    assert [row["height"] for row in rows] == list(range(len(rows)))
    assert json.loads(others[1])["vertices"] == rows[-2:]
    assert f"the newest 2 of {len(rows)}: -n {len(rows)} lists them all" in others[2]


def test_a_vertex_is_written_where_nothing_is_yet(
    pair: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    as_little_chain(monkeypatch)
    monkeypatch.chdir(tmp_path)
    at = ("--dir", pair / "node")
    shown = json.loads(asked("checkpoint", "show", "1", "--json", *at)[1])
    told = json.loads(asked("checkpoint", "export", "1", "--out", "one", "--json", *at)[1])
    assert told == {
        "schema_version": 1,
        "file": str(tmp_path / "one"),
        "height": 1,
        "vertex_id": shown["vertex_id"],
        "model_root": shown["model_root"],
        "tensors": len(TENSORS),
        "parameters": RULES.parameter_count,
    }
    code, told_tip, _ = asked("checkpoint", "export", "tip", *at)
    assert code == 0
    size = f"{len(TENSORS)} tensors, {RULES.parameter_count} parameters"
    assert told_tip == f"wrote model.safetensors: height 5, {size}\n"
    before = (tmp_path / "one").read_bytes()
    assert before != (tmp_path / "model.safetensors").read_bytes()
    (tmp_path / "link").symlink_to("nowhere")
    for out in ("one", "link"):
        code, _, why = asked("checkpoint", "export", "tip", "--out", out, *at)
        assert (code, f"{out} exists: choose another --out" in why) == (2, True), why
    assert (tmp_path / "one").read_bytes() == before
    for format_, said in (("onnx", "safetensors or hf"), ("hf", "none of the transformers")):
        code, _, why = asked("checkpoint", "export", "tip", "--format", format_, *at)
        assert (code, said in why) == (2, True), why
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "model.safetensors", "one"]
