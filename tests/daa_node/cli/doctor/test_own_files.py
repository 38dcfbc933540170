"""What is wrong with a directory is found, by the sentence that `run` ends with."""

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import trio

from daa_node.agreement.withdrawal import KIND, NAME
from daa_node.cli.data_directory import DataDirectory
from daa_node.cli.doctor.command import doctor
from daa_node.cli.doctor.findings import Level
from daa_node.cli.doctor.registry import QUICK, look
from daa_node.cli.doctor.scene import open_scene
from tests.daa_node.cli.conftest import JOB, Command, make_node
from tests.daa_node.cli.doctor.scenes import (
    CHECKS,
    GOLDEN,
    LISTEN,
    ROOMY,
    found_by,
    made_node,
    only,
)

Spoil = Callable[[Path], object]
OTHER_CHAIN = "b" * 64


def _shared_key(root: Path) -> None:
    (root / "keys" / "ml_dsa.key").chmod(0o644)


def _unreadable_pack(root: Path) -> None:
    """As a disk that fails: opening it ends with an error of the system."""
    (root / "chain/packs").mkdir(parents=True)
    (root / "chain/packs/loop").symlink_to("loop")


@pytest.mark.parametrize(
    ("check", "spoil", "words"),
    [
        ("directory", lambda root: (root / "VERSION").unlink(), "no file VERSION"),
        ("directory", lambda root: (root / "VERSION").write_text("99"), "a newer daa-node"),
        ("directory", lambda root: (root / "VERSION").write_text("9" * 5000), "not a version"),
        ("directory", lambda root: (root / "VERSION").write_text("\u00b2"), "not a version"),
        ("directory", _unreadable_pack, "cannot look at the files in"),
        ("config", lambda root: (root / "config.yaml").write_text("a: [\n"), "config.yaml:2:1"),
        ("config", lambda root: (root / "config.yaml").write_text("rol: edge\n"), "'role'"),
        ("keys", _shared_key, "others on this host may read"),
        ("keys", lambda root: (root / "keys" / "libp2p.key").unlink(), "libp2p.key is missing"),
        ("genesis", lambda root: (root / "genesis.json").unlink(), "there is no genesis at"),
        (
            "genesis",
            lambda root: (root / "genesis.json").write_text(GOLDEN.replace('"test"', '"tess"')),
            "was changed after it was made",
        ),
        ("settings", lambda root: (root / "weights.safetensors").touch(), "would be ignored"),
    ],
)
async def test_what_is_spoilt_is_named_as_run_names_it(
    command: Command, tmp_path: Path, check: str, spoil: Spoil, words: str
) -> None:
    root = made_node(tmp_path / "n")
    assert (await only(check, root))[0] == "ok"
    spoil(root)
    level, cause, _ = await only(check, root)
    assert level == "error"
    assert words in cause


async def test_who_has_retired_is_told_so_where_its_settings_say_that_it_enrolls(
    command: Command, tmp_path: Path
) -> None:
    root = made_node(tmp_path / "n", LISTEN + "enroll: true\n")
    assert (await only("settings", root))[0] == "ok"
    (root / "work" / KIND).mkdir(parents=True)
    (root / "work" / KIND / NAME).touch()
    level, cause, advice = await only("settings", root)
    assert level == "warning"
    assert "this node has retired" in cause
    assert "`daa-node trainers enroll`" in cause
    assert advice.startswith("Nothing, if it is to stay so")


@pytest.mark.parametrize(
    "spoil",
    [
        lambda root: (root / "VERSION").write_text("99"),
        lambda root: (root / "config.yaml").write_text("rol: edge\n"),
        lambda root: (root / "genesis.json").unlink(),
        lambda root: (root / "weights.safetensors").touch(),
    ],
)
def test_run_and_doctor_say_the_same_sentence(
    command: Command, tmp_path: Path, spoil: Spoil
) -> None:
    root = made_node(tmp_path / "n")
    spoil(root)
    refused = command("run", "--dir", root)
    told = refused.err.partition("error: ")[2].strip()
    is_node = "directory" not in open_scene(root, None, ROOMY).faults
    found = {
        finding.cause.strip()
        for check in QUICK[: len(QUICK) if is_node else 1]
        for finding in trio.run(found_by, check.name, root)
        if finding.level is Level.ERROR
    }
    assert told in found


def test_where_all_is_well_the_command_ends_with_no_error(
    command: Command, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tmp_path / "n"
    record, job = make_node(command, root), tmp_path / "job.yaml"
    job.write_text(JOB)
    out = root / "genesis.json"
    made = command("genesis", "create", job, "--validator", record, "--out", out, "--dir", root)
    assert made.code == 0
    config = root / "config.yaml"
    config.write_text(config.read_text().replace("/tcp/4001]", "/tcp/0]", 1))
    assert doctor(root, None, as_json=True, host=ROOMY)
    said = json.loads(capsys.readouterr().out)
    assert said["ok"] is True
    assert {finding["level"] for finding in said["findings"]} == {"ok", "unmeasured"}
    assert {finding["check"] for finding in said["findings"]} == {*CHECKS, "clock", "reach"}
    assert doctor(root, None, as_json=False, host=ROOMY)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(CHECKS) + 3  # the clock's, the reach, and what it comes to


async def test_a_daemon_in_another_chain_than_the_genesis_names_is_an_error(
    tmp_path: Path,
) -> None:
    scene = open_scene(made_node(tmp_path / "n"), None, ROOMY)
    scene = replace(scene, runs="17", status={"chain_id": OTHER_CHAIN})
    (found,) = await look(CHECKS["genesis"], scene)
    assert found.level is Level.ERROR
    assert OTHER_CHAIN[:16] in found.cause
    (who,) = await look(CHECKS["identity"], scene)
    assert (who.level, "pid 17" in who.cause) == (Level.OK, True)


async def test_an_older_format_is_well_and_told(tmp_path: Path) -> None:
    root = made_node(tmp_path / "n")
    (root / "VERSION").write_text("1\n")
    level, cause, _ = await only("directory", root)
    assert (level, "the next run makes it 2" in cause) == ("ok", True)
    assert (root / "VERSION").read_text() == "1\n"


async def test_what_lies_there_of_another_chain_is_told_before_it_is_put_aside(
    tmp_path: Path,
) -> None:
    root = made_node(tmp_path / "n")
    (root / "network").write_text(f"{OTHER_CHAIN}\n")
    level, cause, _ = await only("genesis", root)
    assert level == "warning"
    assert OTHER_CHAIN[:16] in cause


async def test_a_daemon_that_holds_the_directory_is_named_by_its_pid(tmp_path: Path) -> None:
    root = made_node(tmp_path / "n")
    assert (await only("identity", root))[0] == "ok"
    with DataDirectory(root).locked():
        level, cause, _ = await only("identity", root)
    assert level == "warning"  # nothing answers at its control socket
    assert f"a daemon is already running in {root} (pid {os.getpid()})" in cause
    assert "answers nobody yet" in cause


async def test_of_a_daemon_that_is_stopped_no_answer_is_waited_for(tmp_path: Path) -> None:
    root = made_node(tmp_path / "n")
    with DataDirectory(root).locked():
        host = replace(ROOMY, is_stopped=lambda pid: pid == os.getpid())
        level, cause, _ = await only("identity", root, host)
    assert level == "warning"
    assert f"process {os.getpid()} is stopped: `kill -CONT" in cause


async def test_keys_that_sign_elsewhere_are_an_error(tmp_path: Path) -> None:
    root = made_node(tmp_path / "n")
    event = {"ts": 1.0, "name": "key_elsewhere", "why": "a Rejoin that is not ours"}
    (root / "events.jsonl").write_text(json.dumps(event) + "\n")
    well, wrong = await found_by("identity", root)
    assert (str(well.level), str(wrong.level)) == ("ok", "error")
    assert "a Rejoin that is not ours" in wrong.cause


async def test_what_follows_from_a_file_that_cannot_be_read_is_not_measured(tmp_path: Path) -> None:
    root = made_node(tmp_path / "n", genesis=None)
    (level, cause, _) = await only("disk room", root)
    assert (level, "genesis.json" in cause) == ("unmeasured", True)


def test_of_what_is_no_node_nothing_else_is_said(command: Command, tmp_path: Path) -> None:
    done = command("doctor", "--dir", tmp_path / "none")
    assert done.code == 1
    assert "there is no node in" in done.out
    assert done.out.splitlines()[-1] == "1 error"
