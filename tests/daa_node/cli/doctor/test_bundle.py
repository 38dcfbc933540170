"""The file for whoever helps: all that led to a trouble, and no secret of the directory."""

import json
import os
import stat
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from daa_node.adapters.system_clock import SystemEntropy
from daa_node.adapters.token_files import open_tokens
from daa_node.cli.data_directory import DataDirectory
from daa_node.cli.doctor import bundle
from daa_node.cli.doctor.command import doctor
from daa_node.cli.doctor.findings import well
from daa_node.cli.doctor.redaction import secrets_of
from daa_node.cli.doctor.scene import Scene, open_scene
from daa_node.errors import StorageFailed, UserError
from tests.daa_node.cli.conftest import Command
from tests.daa_node.cli.doctor.scenes import LISTEN, ROOMY, made_node

FOUND = [well("port", "it is free")]


def unpacked(path: Path) -> dict[str, str]:
    with tarfile.open(path) as archive:
        found = {}
        for entry in archive:
            file = archive.extractfile(entry)
            assert file is not None
            found[entry.name.removeprefix("daa-bundle/")] = file.read().decode()
        return found


def talkative(root: Path) -> Path:
    """A node whose logs tell all that it knows."""
    files = "data: {path: /srv/ann/patients.csv}\nhistory: {baseline: anns.json}\n"
    made_node(root, LISTEN + files)
    open_tokens(root, SystemEntropy())
    secrets = sorted(secrets_of(DataDirectory(root)))
    with (root / "events.jsonl").open("w") as log:
        for secret in secrets:
            log.write(json.dumps({"ts": 1.0, "name": "decision", "reason": f"of {secret}"}) + "\n")
        log.write('{"ts": 2.0, "na')
    (root / "trainer").mkdir()
    (root / "trainer" / "worker.log").write_text(f"read {root}\n" + "\n".join(secrets))
    return root


def test_no_secret_of_the_directory_is_in_the_bundle(tmp_path: Path) -> None:
    root, out = talkative(tmp_path / "n"), tmp_path / "b.tar.gz"
    scene = open_scene(root, None, ROOMY)
    secrets = secrets_of(scene.directory)
    told: dict[str, Any] = {"node_id": "ab" * 32, "why": f"because of {min(secrets)}"}
    scene = replace(scene, status=told, peers=({"address": "/ip4/8.8.8.8/tcp/1", **told},))
    size_bytes = bundle.write(out, bundle.members_of(scene, FOUND))
    assert out.stat().st_size == size_bytes
    assert stat.S_IMODE(out.stat().st_mode) == 0o600
    members = unpacked(out)
    assert members.keys() == {
        *("README.txt", "about.json", "findings.json", "settings.json", "network.json"),
        *("status.json", "peers.json", "events.jsonl", "worker.log"),
    }
    whole = "\n".join(members.values())
    assert len(secrets) > 8
    assert [secret for secret in secrets if secret.lower() in whole.lower()] == []
    for private in (str(root), "patients", "anns.json", "8.8.8.8"):
        assert private not in whole
    assert "ab" * 32 in members["status.json"]
    events = [json.loads(line) for line in members["events.jsonl"].splitlines()]
    assert {event["reason"] for event in events} == {"of <secret>"}
    assert json.loads(members["settings.json"])["data.path"] == "<path>"
    assert json.loads(members["findings.json"])[0]["cause"] == "it is free"


def test_of_what_is_no_node_nothing_is_read(tmp_path: Path) -> None:
    (tmp_path / "events.jsonl").write_text('{"name": "of somebody else"}\n')
    members = bundle.members_of(open_scene(tmp_path, None, ROOMY), FOUND)
    assert members.keys() == {"README.txt", "about.json", "findings.json"}


def test_each_member_has_a_bound(tmp_path: Path) -> None:
    root = made_node(tmp_path / "n")
    line = json.dumps({"ts": 1.0, "name": "decision", "reason": "x" * 500}) + "\n"
    (root / "events.jsonl").write_text(line * 100)
    (root / "events.jsonl.1").write_text(line * 2500)
    scene = replace(open_scene(root, None, ROOMY), status={"all": ["y" * 100] * 30_000})
    members = bundle.members_of(scene, FOUND)
    assert len(line) * 1500 < len(members["events.jsonl"]) <= bundle.EVENTS_BYTES_MAX
    assert "left_out" in json.loads(members["status.json"])


def test_a_secret_that_the_bound_cuts_is_no_part_of_the_bundle(tmp_path: Path) -> None:
    root = made_node(tmp_path / "n")
    secret = max(secrets_of(DataDirectory(root)), key=len)
    (root / "trainer").mkdir()
    log, rest = root / "trainer" / "worker.log", f"{secret[10:]}\nthe rest\n"
    log.write_text(secret[:10] + rest + "x" * (bundle.LOG_BYTES_MAX - len(rest)))
    members = bundle.members_of(open_scene(root, None, ROOMY), FOUND)
    assert secret[10:].encode() not in members["worker.log"]
    assert members["worker.log"].startswith(b"the rest\n")


def test_a_log_in_the_bundle_moves_no_cursor_and_its_hosts_are_known_throughout(
    tmp_path: Path,
) -> None:
    root = made_node(tmp_path / "n")
    (root / "events.jsonl").write_text('{"name": "x", "address": "/dns4/ann.example/tcp/1"}\n')
    (root / "daemon.log").write_text("\x1b[2Jann.example is away\x07\n")
    members = bundle.members_of(open_scene(root, None, ROOMY), FOUND)
    assert members["daemon.log"] == b"<host-1> is away\\x07\n"
    assert b"/dns4/<host-1>/" in members["events.jsonl"]


@pytest.mark.parametrize("is_link", [False, True])
def test_nothing_is_overwritten(command: Command, tmp_path: Path, is_link: bool) -> None:
    out = tmp_path / "b.tar.gz"
    if is_link:
        out.symlink_to(tmp_path / "nowhere")
    else:
        out.write_text("mine")
    done = command("doctor", "--bundle", out, "--dir", made_node(tmp_path / "n"))
    assert (done.code, done.out) == (2, "")
    assert "overwrites nothing" in done.err
    with pytest.raises(UserError, match="overwrites nothing"):
        bundle.write(out, {})  # made since the look
    assert is_link or out.read_text() == "mine"
    assert not (tmp_path / "nowhere").exists()


def test_a_folder_that_is_not_there_is_told_before_the_look(
    command: Command, tmp_path: Path
) -> None:
    done = command("doctor", "--bundle", tmp_path / "a" / "b.tar.gz", "--dir", tmp_path / "none")
    assert (done.code, done.out) == (2, "")
    assert "is no directory" in done.err


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_takes_nothing_is_told(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o500)
    with pytest.raises(StorageFailed, match="cannot write"):
        bundle.write(closed / "b.tar.gz", {})


def test_the_command_says_what_it_wrote(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "b.tar.gz"
    assert not doctor(tmp_path / "none", None, as_json=True, host=ROOMY, bundle=out)
    said = capsys.readouterr()
    assert json.loads(said.out)["bundle"] == str(out)
    assert "Look through it before you send it" in said.err
    assert "there is no node in" in unpacked(out)["findings.json"]


def test_a_deep_line_of_the_log_stops_no_bundle(tmp_path: Path) -> None:
    root = made_node(tmp_path / "n")
    deep = '{"name": ' + "[" * 900 + "]" * 900 + "}\n"
    (root / "events.jsonl").write_text(deep + '{"name": "node_started"}\n\xff\n17\n')
    scene: Scene = open_scene(root, None, ROOMY)
    assert b"node_started" in bundle.members_of(scene, FOUND)["events.jsonl"]
