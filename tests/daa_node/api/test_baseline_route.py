"""The run beside this one, over HTTP: its figures, or one sentence that says why there are none."""

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from daa_node.api.baseline_route import NONE_NAMED, baseline_route
from daa_node.chronicle.baseline import FILE_BYTES_MAX, Baseline
from daa_node.chronicle.config import HistoryConfig
from daa_node.cli.data_directory import DataDirectory
from daa_node.cli.keeping import baseline_of
from daa_node.config import NodeConfig
from daa_node.wire.http_messages import Visit
from tests.daa_node.api.operator_desks import TOKENS, operator_desk
from tests.daa_node.inline import Inline

GOOD = b'{"rounds": [{"height": 1, "wall_s": 2.0, "loss_nats": 3.5}]}'


def reader(folder: Path, name: str | None) -> Callable[[], Baseline] | None:
    config = SimpleNamespace(history=HistoryConfig(baseline=None if name is None else Path(name)))
    return baseline_of(cast(NodeConfig, config), cast(DataDirectory, SimpleNamespace(root=folder)))


async def told(read: Callable[[], Baseline] | None) -> Any:
    desk = operator_desk(more=(baseline_route(read, Inline()),))
    header = f"Bearer {TOKENS.read}"
    visit = Visit("GET", "/v1/baseline", "127.0.0.1:9180", authorization=header)
    reply = await desk.answer(visit)
    assert reply.status == 200
    return json.loads(reply.body)


async def test_a_file_of_the_directory_is_told_and_read_anew_each_time(tmp_path: Path) -> None:
    read, file = reader(tmp_path, "other.json"), tmp_path / "other.json"
    file.write_bytes(GOOD)
    answer = await told(read)
    assert answer["why_not"] is None
    assert answer["baseline"]["rounds"] == [
        {"height": 1, "at_s": 2.0, "wall_s": 2.0, "loss_nats": 3.5}
    ]
    file.write_bytes(GOOD.replace(b"3.5", b"2.5"))
    assert (await told(read))["baseline"]["rounds"][0]["loss_nats"] == 2.5


async def test_where_none_is_named_that_is_said(tmp_path: Path) -> None:
    assert await told(reader(tmp_path, None)) == {
        "schema_version": 1,
        "baseline": None,
        "why_not": NONE_NAMED,
    }


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ("missing", "is no file: put one there, or name another"),
        ("folder", "is no file: put one there, or name another"),
        ("no JSON", "it is no JSON"),
        ("large", f"has more than {FILE_BYTES_MAX} bytes"),
        ("out of reach", "File name too long"),
    ],
)
async def test_a_file_that_cannot_be_used_is_named_with_what_is_wrong(
    wrong: str, why: str, tmp_path: Path
) -> None:
    file = tmp_path / "other.json"
    name = "other.json"
    if wrong == "out of reach":  # as is what lies in a folder of another user
        name = f"{'x' * 300}/other.json"
    elif wrong == "folder":
        file.mkdir()
    elif wrong == "no JSON":
        file.write_bytes(b"loss 3.5")
    elif wrong == "large":
        with file.open("wb") as sparse:
            sparse.truncate(FILE_BYTES_MAX + 1)
    answer = await told(reader(tmp_path, name))
    assert answer["baseline"] is None
    assert "other.json" in answer["why_not"]
    assert why in answer["why_not"]
    assert "\n" not in answer["why_not"]
