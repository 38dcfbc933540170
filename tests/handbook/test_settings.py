"""The tables of settings have every key, as the model has it."""

from typing import Literal

import pytest
from pydantic import BaseModel, Field

from daa_node import config_file
from daa_node.config import SAFE_KEYS, NodeConfig
from daa_node.genesis import Job
from handbook.settings import Setting, in_figures, settings_of, table, table_row
from simnet.world.scenario import Scenario


class Inner(BaseModel):
    """A section."""

    wait_s: float = Field(2.0, gt=0, le=600, description="to wait")
    names: tuple[str, ...] = Field((), max_length=3, description="of hosts")


class Outer(BaseModel):
    """A file."""

    kind: Literal["a", "b"] = Field("a", description="which")
    share: tuple[int, int] = Field((1, 10), description="a fraction")
    size_bytes: int | None = Field(None, ge=2**20, description="how large; null: any")
    name: str = Field(pattern="^[a-z]+$", description="of it")
    inner: Inner = Inner(wait_s=5.0)
    many: tuple[Inner, ...] = Field((), description="more of them")


SETTINGS = {each.path: each for each in settings_of(Outer)}


def test_a_setting_is_told_whole() -> None:
    assert SETTINGS["kind"] == Setting("kind", "`a`, `b`", "", "", "`a`", "which")
    assert SETTINGS["name"] == Setting("name", "text", "", "like `^[a-z]+$`", "required", "of it")
    size = SETTINGS["size_bytes"]
    assert size.kind == "whole number, or `null`"
    assert (size.unit, size.bounds, size.default) == ("bytes", "at least 2^20", "`null`")
    assert SETTINGS["share"].kind == "pair: [whole number, whole number]"
    assert SETTINGS["share"].default == "`[1, 10]`"
    names = SETTINGS["inner.names"]
    assert (names.kind, names.bounds) == ("list of text", "at most 3 of them")


def test_a_section_may_begin_with_defaults_of_its_own() -> None:
    assert SETTINGS["inner.wait_s"].default == "`5.0`"
    assert SETTINGS["many[].wait_s"].default == "`2.0`"
    assert SETTINGS["many[].wait_s"].bounds == "above 0, at most 600"
    assert SETTINGS["many[].wait_s"].unit == "s"
    assert SETTINGS["many"].kind == "list of sections"


def test_a_bar_parts_cells_only_where_it_is_meant_to() -> None:
    assert table_row(["`a|b`", "c|d\ne"]) == "| `a|b` | c\\|d e |"


@pytest.mark.parametrize(
    ("number", "said"),
    [(65_536, "65,536"), (2**20, "2^20"), (2**63 - 1, "2^63 - 1"), (10**9, "10^9"), (0.5, "0.5")],
)
def test_large_bounds_are_readable(number: float, said: str) -> None:
    assert in_figures(number) == said


def test_every_setting_of_a_node_is_there() -> None:
    told = {each.path for each in settings_of(NodeConfig)}
    assert told == {".".join(map(str, path)) for path in config_file.leaves(NodeConfig)}
    rows = [line for line in table(list(settings_of(NodeConfig)), SAFE_KEYS) if "| `" in line]
    assert len(rows) == len(told)
    assert sum("| applies |" in row for row in rows) == len(SAFE_KEYS)


@pytest.mark.parametrize("model", [NodeConfig, Job, Scenario], ids=lambda model: model.__name__)
def test_every_setting_says_what_it_means(model: type[BaseModel]) -> None:
    told = list(settings_of(model, leave_out=("model.built",)))
    assert len(told) > 40
    assert [each.path for each in told if not each.meaning] == []
    assert [each.path for each in told if each.kind == "any value"] == []
