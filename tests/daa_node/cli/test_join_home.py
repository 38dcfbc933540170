"""What a host lacks is told whole, the node is kept for it, and settings stay their owner's."""

import os
import re
import stat
from pathlib import Path

import pytest
import yaml
from blake3 import blake3

from daa_consensus.enrolment import Enroll
from daa_dag.ids import VertexId
from daa_node import config as node_config
from daa_node import genesis
from daa_node.cli import identity
from daa_node.cli.data_directory import DataDirectory
from daa_node.cli.host_needs import lacking
from daa_node.cli.join_home import with_invite
from daa_node.cli.trusted import read_trusted
from daa_node.config import NodeConfig
from daa_node.errors import UserError
from daa_node.network.config import BOOTSTRAP_MAX
from daa_node.network.invite_text import decode_invite
from daa_node.training import base_files
from daa_node.training.base_config import BaseFolder
from daa_node.training.data_config import DataConfig
from daa_node.training.model_config import ModelConfig
from tests.daa_node.cli import test_join
from tests.daa_node.cli.test_daemon import TINY
from tests.daa_node.cli.test_join import MADE, Person, inviting

person = test_join.person  # a fixture
SOURCE, CORPUS = b"def build():\n    raise AssertionError\n", b"To be, or not to be\n" * 9000
INVITED = ("127.0.0.1:4001", "node.example:4002")
DIALLED = ("/ip4/127.0.0.1/tcp/4001", "/dns/node.example/tcp/4002")
ADDED = '  bootstrap: ["127.0.0.1:4001", "node.example:4002"]  # told us of the network\n'
ENROLL = "enroll: true  # it trains, and says so again whenever it was away\n"


def own_model(**given: object) -> ModelConfig:
    built = {
        "source_digest": blake3(SOURCE).hexdigest(),
        "tensors": [{"name": "weight", "shape": [10, 64]}],
    }
    path = "own_package.model:build"
    return ModelConfig.model_validate(
        {"kind": "module", "path": path, "context": 64, "built": built, **given}
    )


def own_network(**given: object) -> genesis.Genesis:
    """Of somebody's model and somebody's file."""
    data = DataConfig(kind="text", path=Path("corpus.txt"), digest=blake3(CORPUS).hexdigest())
    job = TINY.model_copy(
        update={"name": "ours", "model": own_model(), "data": data, **given},
    )
    nonce = bytes(genesis.NONCE_BYTES)
    return genesis.create(job, [("founder", MADE.records[0])], nonce)


async def test_what_a_host_lacks_is_told_at_once_and_the_same_line_goes_on(
    person: Person,
) -> None:
    made = own_network()
    config = person.root / "config.yaml"
    async with inviting(made=made) as inviter:
        text = await inviter.invite()
        said = await person.joins(text)
        assert (person.ran, inviter.offered) == ([], [])
        for words in (
            "set trainer.allow_modules: [own_package] in config.yaml",
            "there is no own_package here: it is not installed; install it, or set "
            "trainer.module_path in config.yaml",
            f"Its file should have the blake3 {blake3(SOURCE).hexdigest()}",
            f"{person.root}/corpus.txt:1: cannot read the file",
            f"Its content should have the blake3 {blake3(CORPUS).hexdigest()}",
            f"its settings in {config}",
            "no use of the invite was taken",
            "give the same line again",
        ):
            assert words in said
        key = identity.open_node(person.root).keys.node_id
        text_there = config.read_text()
        allowed = "trainer:\n  allow_modules: [own_package]\n  module_path: code\n"
        config.write_text(text_there.replace("trainer:\n", allowed, 1))
        package = person.root / "code" / "own_package"
        package.mkdir(parents=True)
        (package / "model.py").write_bytes(SOURCE)
        said = await person.joins(text)
        assert "own_package" not in said
        assert f"{person.root}/corpus.txt:1: cannot read the file" in said
        (person.root / "corpus.txt").write_bytes(CORPUS)
        assert await person.joins(text) == ""
        actions = [enrolment.request.action for enrolment in inviter.offered]
    assert [action.subject for action in actions if isinstance(action, Enroll)] == [key]
    assert config.read_text() == text_there.replace("trainer:\n", allowed, 1)


async def test_the_environment_says_what_is_allowed_as_well(
    person: Person, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, code = own_network(), tmp_path / "code" / "own_package"
    code.mkdir(parents=True)
    (code / "model.py").write_bytes(SOURCE)
    (tmp_path / "ours.txt").write_bytes(CORPUS)
    monkeypatch.setenv("DAA_TRAINER__ALLOW_MODULES", "[own_package]")
    monkeypatch.setenv("DAA_TRAINER__MODULE_PATH", str(code.parent))
    monkeypatch.setenv("DAA_DATA__PATH", str(tmp_path / "ours.txt"))
    async with inviting(made=made) as inviter:
        assert await person.joins(await inviter.invite()) == ""
    assert person.ran == [person.root]


async def test_what_the_worker_finds_keeps_the_node_too(person: Person) -> None:
    person.worker_says = "this machine cannot train that network's job: the wrong corpus.txt"
    async with inviting() as inviter:
        text = await inviter.invite()
        said = await person.joins(text, "ab" * 32)
        assert person.worker_says in said
        assert f"its settings in {person.root}/config.yaml" in said
        assert identity.open_node(person.root).config.value.enroll
        assert not inviter.offered
        assert read_trusted(person.root / "trusted") == {MADE.chain_id: VertexId(b"\xab" * 32)}
        person.worker_says = ""
        assert await person.joins(text) == ""


async def test_a_node_that_was_made_before_enrolls_from_now_on(person: Person) -> None:
    identity.create_node(person.root, "# mine\nenroll: false  # not yet\nrole: edge\n")
    config = person.root / "config.yaml"
    config.chmod(0o640)
    async with inviting() as inviter:
        text = await inviter.invite()
        assert await person.joins(text) == ""
        invite = decode_invite(text)
    kept = config.read_text()
    assert kept.startswith("# mine\nenroll: true  # not yet\nrole: edge\n")
    loaded = identity.open_node(person.root).config.value
    assert loaded.enroll
    assert loaded.network.bootstrap == tuple(invite.dialled)
    assert stat.S_IMODE(config.stat().st_mode) == 0o640


async def test_who_says_no_with_a_node_at_hand_has_changed_nothing(
    person: Person, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", type("Terminal", (), {"isatty": lambda _self: True})())
    identity.create_node(person.root, "role: edge\n")
    before = (person.root / "config.yaml").read_text()
    person.answers = False
    async with inviting() as inviter:
        assert await person.joins(await inviter.invite()) == ""
        assert not inviter.offered
    assert capsys.readouterr().out.endswith("nothing was changed\n")
    assert (person.root / "config.yaml").read_text() == before
    assert not (person.root / "genesis.json").exists()


async def test_a_directory_of_other_things_is_left_alone(person: Person) -> None:
    person.root.mkdir()
    (person.root / "config.yaml").write_text("role: edge\n")
    async with inviting() as inviter:
        said = await person.joins(await inviter.invite())
    assert "is not empty and holds no node. Give a --dir that is empty or not there" in said
    assert [path.name for path in person.root.iterdir()] == ["config.yaml"]


async def test_settings_that_are_written_in_another_way_are_left_alone(person: Person) -> None:
    identity.create_node(person.root, "")
    config = person.root / "config.yaml"
    config.write_text("{role: edge}")
    async with inviting() as inviter:
        said = await person.joins(await inviter.invite())
        assert not inviter.node.directory.standings()  # nobody was asked
    assert config.read_text() == "{role: edge}"
    lines = said.partition("give the same line again:\n")[2]
    assert re.fullmatch(r"enroll: true\nnetwork:\n  bootstrap:\n  - 127.0.0.1:\d+", lines)
    config.write_text(lines)
    async with inviting() as inviter:
        assert await person.joins(await inviter.invite()) == ""


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", f"{ENROLL}network:\n{ADDED}"),
        ("# only words\n", f"# only words\n{ENROLL}network:\n{ADDED}"),
        ("# mine\nrole: edge # x\n", f"# mine\n{ENROLL}role: edge # x\nnetwork:\n{ADDED}"),
        (
            "enroll: false  # no\nnetwork:\n  mdns: true\n",
            f"enroll: true  # no\nnetwork:\n{ADDED}  mdns: true\n",
        ),
        (
            "enroll: true\nnetwork:\n  bootstrap:\n    # of a friend\n    - a.example:1 # f\n"
            "  # y\n",
            'enroll: true\nnetwork:\n  bootstrap:\n    # of a friend\n    - "127.0.0.1:4001"\n'
            '    - "node.example:4002"\n    - a.example:1 # f\n  # y\n',
        ),
        (
            "enroll: true\nnetwork:\n  bootstrap:\n  - a.example:1\n",
            'enroll: true\nnetwork:\n  bootstrap:\n  - "127.0.0.1:4001"\n'
            '  - "node.example:4002"\n  - a.example:1\n',
        ),
        (
            "enroll: true\nnetwork: {bootstrap: [a.example:1]} # z\n",
            'enroll: true\nnetwork: {bootstrap: ["127.0.0.1:4001", "node.example:4002", '
            "a.example:1]} # z\n",
        ),
        (
            "enroll: true\nnetwork:\n  bootstrap: a.example:1  # of a friend\n",
            'enroll: true\nnetwork:\n  bootstrap: ["127.0.0.1:4001", "node.example:4002", '
            "a.example:1]  # of a friend\n",
        ),
        (
            'enroll: true\nnetwork: {bootstrap: ["node.example:4002", "127.0.0.1:4001"]}\n',
            None,
        ),
    ],
)
def test_settings_of_their_owner_stay_as_they_are_written(before: str, after: str | None) -> None:
    text = with_invite("config.yaml", before, INVITED)
    assert text == (before if after is None else after)
    found = node_config.load("config.yaml", text).value
    assert found.enroll
    assert set(DIALLED) <= set(found.network.bootstrap)
    assert with_invite("config.yaml", text, INVITED) == text


def test_an_environment_that_says_not_to_enroll_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DAA_ENROLL", "false")
    with pytest.raises(UserError, match="environment DAA_ENROLL says false"):
        with_invite("config.yaml", "", INVITED)


def told_of(made: genesis.Genesis, root: Path, **sections: object) -> list[str]:
    return lacking(made, DataDirectory(root), NodeConfig.model_validate(sections))


def test_a_base_a_data_set_and_data_of_ones_own_are_looked_for(tmp_path: Path) -> None:
    files = {"config.json": "ab" * 32, "model.safetensors": "cd" * 32}
    model = own_model(base={"path": "tiny", "files": files}, trainable=["weight"])
    *_, told = told_of(own_network(model=model, data=MADE.job.data), tmp_path)
    assert f"{tmp_path}/tiny/config.json: cannot read this file of the model's base" in told
    assert f"should have the blake3 {'ab' * 32}" in told
    (tmp_path / "tiny").mkdir()
    for name in files:
        (tmp_path / "tiny" / name).write_text("{}")
    *_, told = told_of(own_network(model=model, data=MADE.job.data), tmp_path)
    assert "base" not in told
    data = DataConfig(kind="dataset", path=Path("own.data:build"), digest="ef" * 32)
    allow, there = told_of(own_network(model=MADE.job.model, data=data), tmp_path)
    assert "set trainer.allow_modules: [own] in config.yaml" in allow
    assert there.endswith(f"Its file should have the blake3 {'ef' * 32}")
    own = DataConfig(kind="local", format="text", path=Path("heldout.txt"), digest="12" * 32)
    checks = MADE.job.spot_checks.model_copy(update={"share": (0, 1)})
    made = own_network(model=MADE.job.model, data=own, spot_checks=checks)
    shared, mine = told_of(made, tmp_path)
    assert "12" * 32 in shared
    assert "say in config.yaml, data.own.path" in mine


def test_who_never_trains_is_told_so(tmp_path: Path) -> None:
    (told,) = told_of(MADE, tmp_path, trainer={"contribute": False})
    assert "trainer.contribute is false" in told


def test_no_more_are_dialled_than_settings_may_have() -> None:
    known = [f"/ip4/10.0.0.{number}/tcp/4001" for number in range(1, BOOTSTRAP_MAX)]
    text = yaml.safe_dump({"enroll": True, "network": {"bootstrap": known}})
    new = ["/ip4/10.1.0.1/tcp/4001", "/ip4/10.1.0.2/tcp/4001"]
    changed = with_invite("config.yaml", text, new)
    listed = node_config.load("config.yaml", changed, {}).value.network.bootstrap
    assert set(listed) == {*known, new[0]}
    assert with_invite("config.yaml", changed, new) == changed


def test_a_pipe_in_place_of_a_base_is_named_and_keeps_nobody_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "model.safetensors")
    base = BaseFolder(path=tmp_path, files={"model.safetensors": "ab" * 32})
    with pytest.raises(UserError, match="a pipe, a socket or a device is no file"):
        base_files.check_there(base)
