"""What a person reads after a typo: the place, the line, a caret and the key that was meant."""

from pathlib import Path
from typing import Annotated

import pytest
from pydantic import BaseModel, ConfigDict, Field

from daa_node.config_file import LINE_SHOWN_MAX, Override, environment_overrides, load
from daa_node.errors import UserError


class Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


Word = Annotated[str, Field(pattern="^[a-z]+$")]


class Api(Section):
    host: str = "127.0.0.1"
    quiet: bool = False
    user: str = Field("me", pattern="^[a-z]+$", description="a name of small letters")
    port: int = Field(7070, ge=1, le=65535)


class Train(Section):
    lr: float = Field(1e-3, gt=0)
    sync_every: int = Field(50, ge=1)


class Names(Section):
    told: list[Word] = Field([], description="names of small letters")
    untold: Word = "me"


class Config(Section):
    version: int = 1
    api: Api = Api()
    train: Train = Train()
    peers: list[Api] = []
    seed: int | None = None
    either: Train | list[str] | None = None
    file: Path | None = None
    names: Names = Names()


def refused(text: str, *overrides: Override) -> str:
    with pytest.raises(UserError) as caught:
        load("c.yaml", text, Config, overrides)
    return str(caught.value)


def test_all_faults_are_shown_at_once_each_with_its_line_and_a_caret() -> None:
    said = refused("api:\n  port: 99999\ntrain:\n  learning_rate: 0.01\n  lr: fast\n")
    assert said == (
        "c.yaml:2:9: error: api.port: input should be less than or equal to 65535 (got 99999)\n"
        "  2 |   port: 99999\n"
        "    |         ^^^^^\n"
        "c.yaml:4:3: error: train.learning_rate: unknown key; known keys: lr, sync_every\n"
        "  4 |   learning_rate: 0.01\n"
        "    |   ^^^^^^^^^^^^^\n"
        "c.yaml:5:7: error: train.lr: input should be a valid number, unable to parse string as a"
        " number (got 'fast')\n"
        "  5 |   lr: fast\n"
        "    |       ^^^^"
    )


@pytest.mark.parametrize(
    ("text", "where", "what"),
    [
        ("train:\n  sync_evry: 3\n", "c.yaml:2:3:", "did you mean 'sync_every'?"),
        ("port: 3\n", "c.yaml:1:1:", "it belongs under 'api'"),
        ("api:\n  port: 1\n  port: 2\n", "c.yaml:3:3:", "duplicate key 'port' (first at line 2)"),
        ("api:\n\tport: 1\n", "c.yaml:2:1:", "cannot start any token"),
        ("- 1\n", "c.yaml:1:1:", "must hold `key: value` lines"),
        ("api: 7\n", "c.yaml:1:6:", "api: this is a section: its keys"),
        ("peers:\n  - host: a\n    prt: 1\n", "c.yaml:3:5:", "did you mean 'port'?"),
        ("api: &a\n  port: 1\ntrain: *a\n", "c.yaml:1:6:", "aliases"),
        ("peers: 3\n", "c.yaml:1:8:", "peers: this is a list: write [...] (got 3)"),
        ("seed: [1]\n", "c.yaml:1:", "seed: input should be a valid integer"),
        ("api: {quiet: perhaps}\n", "c.yaml:1:14:", "api.quiet: this is true or false (got 'per"),
        ("api: {host: 5}\n", "c.yaml:1:13:", "api.host: this is text: write it in quotes (got 5)"),
        ("file: 5\n", "c.yaml:1:7:", "error: file: this is the path of a file (got 5)"),
        ("either: {lr: 0}\n", "c.yaml:1:14:", "error: either.lr: input should be greater"),
        ("either: 7\n", "c.yaml:1:9:", "error: either: this is a list: write [...] (got 7)"),
        ("a: !!python/object:os.system x\n", "c.yaml:1:4:", "cannot be read"),
    ],
)
def test_a_fault_names_its_place_and_the_remedy(text: str, where: str, what: str) -> None:
    said = refused(text)
    assert where in said
    assert what in said


def test_a_pattern_is_told_in_the_words_of_its_setting() -> None:
    said = refused("peers: [{user: a b}]\n")
    assert "peers.0.user: should be a name of small letters, by ^[a-z]+$ (got 'a b')" in said
    said = refused("names: {told: [a, B]}\n")
    assert "names.told.1: should be names of small letters, by ^[a-z]+$ (got 'B')" in said
    said = refused("names: {untold: B}\n")
    assert "names.untold: string should match pattern '^[a-z]+$' (got 'B')" in said


@pytest.mark.parametrize("text", ["x" * 9000, f"version: {'y' * 9000}", "a: [" + "[" * 9000])
def test_a_file_of_one_long_line_is_shown_around_its_fault(text: str) -> None:
    assert all(len(line) < 240 for line in refused(text).splitlines())


@pytest.mark.parametrize(
    "text",
    [f"seed: {' ' * 300}oops{' ' * 300}#", f"seed: oops {'#' * 300}", f"seed:{' ' * 99}oops"],
)
def test_a_fault_anywhere_in_a_line_stands_above_its_caret(text: str) -> None:
    _, shown, carets = refused(text).splitlines()
    assert shown[carets.index("^") :].startswith("oops")
    assert len(text) > LINE_SHOWN_MAX or shown == f"  1 | {text}"


def test_what_is_wrong_at_the_end_of_a_line_has_a_caret_behind_it() -> None:
    *_, shown, carets = refused("api: {port: 1").splitlines()
    assert carets == "    |".ljust(len(shown)) + "^"


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("peers: [:4001]", "what begins with : has quotes"),
        ("peers: [[::]:4001]", "what begins with : has quotes"),
        ("peers: [cuda:, cpu", "is a bracket open"),
        ("api:\n\tport: 1", "not with a tab"),
    ],
)
def test_what_yaml_says_comes_with_what_it_mostly_is(text: str, hint: str) -> None:
    assert hint in refused(text).splitlines()[0]


def test_values_come_from_the_file_then_the_environment_then_flags() -> None:
    overrides = environment_overrides({"DAA_API__PORT": "81", "PATH": "/bin"}, Config)
    overrides.append(Override(("train", "lr"), "1e-4", "flag --lr"))
    loaded = load("c.yaml", "api:\n  port: 80\n  host: h\ntrain: {lr: 5e-1}\n", Config, overrides)
    assert loaded.value == Config(api=Api(host="h", port=81), train=Train(lr=1e-4))
    assert loaded.origin_of(("api", "port")) == "environment DAA_API__PORT"
    assert loaded.origin_of(("api", "host")) == "c.yaml:3"
    assert loaded.origin_of(("train", "lr")) == "flag --lr"
    assert loaded.origin_of(("train", "sync_every")) == "default"
    assert loaded.origin_of(("version",)) == "default"


def test_a_wrong_value_from_outside_the_file_names_its_variable_or_flag() -> None:
    said = refused("", Override(("api", "port"), "0", "environment DAA_API__PORT"))
    assert said.startswith("environment DAA_API__PORT: error: api.port: ")
    said = refused("", Override(("api", "prot"), "1", "flag"))
    assert said.startswith("flag: error: api.prot: unknown key; did you mean 'port'?")


def test_a_misspelt_variable_is_refused() -> None:
    with pytest.raises(UserError, match="DAA_API__PROT sets nothing; did you mean DAA_API__PORT"):
        environment_overrides({"DAA_API__PROT": "81"}, Config)


def test_an_empty_file_means_the_defaults() -> None:
    assert load("c.yaml", "# nothing\n", Config).value == Config()


def test_a_number_in_scientific_notation_is_a_number() -> None:
    assert load("c.yaml", "train: {lr: 3e-4}", Config).value.train.lr == 3e-4
    assert load("c.yaml", "api: {host: '3e-4'}", Config).value.api.host == "3e-4"


def test_a_flag_reaches_into_a_list_and_is_refused_where_there_is_no_such_item() -> None:
    peers = "peers:\n  - {host: a, port: 1}\n  - {host: b, port: 2}\n"
    changed = load("c.yaml", peers, Config, [Override(("peers", 1, "port"), "3", "flag")])
    assert [api.port for api in changed.value.peers] == [1, 3]
    begun = load("c.yaml", "", Config, [Override(("peers", 0, "port"), "3", "flag")])
    assert [api.port for api in begun.value.peers] == [3]
    assert "there is no peers.2" in refused(peers, Override(("peers", 2, "port"), "3", "flag"))
