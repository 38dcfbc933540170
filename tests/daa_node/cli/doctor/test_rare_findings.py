"""What seldom goes wrong is named, too: so each finding that there is has been provoked."""

import errno
import os
from dataclasses import replace
from pathlib import Path

import pytest

from daa_dag import canonical
from daa_node.adapters.journal_format import guard_of, log_of
from daa_node.cli.data_directory import DataDirectory
from daa_node.cli.doctor import outside, reach
from daa_node.cli.doctor.scene import open_scene
from daa_node.network.dial_back import REQUEST
from daa_node.seams import PeerId
from tests.daa_node.cli.doctor.scenes import ROOMY, made_node, only
from tests.daa_node.cli.doctor.test_outside import MADE
from tests.daa_node.network.neighbours import Neighbour, running


async def test_an_address_that_this_host_does_not_have_is_named(tmp_path: Path) -> None:
    root = made_node(tmp_path / "n", "network: {listen: [/ip4/192.0.2.9/tcp/4001]}\n")
    level, cause, advice = await only("port", root)
    assert level == "error"
    assert cause.startswith("cannot listen on /ip4/192.0.2.9/tcp/4001: ")
    assert os.strerror(errno.EADDRNOTAVAIL) in cause
    assert "network.listen" in advice


async def test_a_disk_that_tells_nothing_is_no_fault(tmp_path: Path) -> None:
    def silent(_path: Path) -> int:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    found = await only("disk room", made_node(tmp_path / "n"), replace(ROOMY, free_bytes=silent))
    assert found[:2] == ("unmeasured", f"cannot ask {tmp_path / 'n'}: {os.strerror(errno.EIO)}")


async def test_a_directory_of_another_user_is_named_with_whose_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = made_node(tmp_path / "n")
    monkeypatch.setattr(os, "access", lambda _path, _mode: False)  # root may write everywhere
    level, cause, advice = await only("directory", root)
    assert (level, f"it belongs to user {os.getuid()}" in cause) == ("error", True)
    assert "owner of the directory" in advice


async def test_a_disk_that_is_mounted_read_only_is_not_told_as_anothers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, real = made_node(tmp_path / "n"), os.statvfs
    monkeypatch.setattr(os, "access", lambda _path, _mode: False)
    monkeypatch.setattr(
        os, "statvfs", lambda path: os.statvfs_result([*real(path)[:8], os.ST_RDONLY, 255])
    )
    level, cause, advice = await only("directory", root)
    assert (level, cause.endswith("its file system is mounted read-only")) == ("error", True)
    assert "Mount it" in advice


async def test_a_lock_that_cannot_be_looked_at_is_named(tmp_path: Path) -> None:
    root = made_node(tmp_path / "n")
    (root / "node.lock").unlink(missing_ok=True)
    (root / "node.lock").symlink_to(root / "node.lock")
    level, cause, _ = await only("identity", root)
    assert (level, cause.startswith(f"cannot open {root / 'node.lock'}: ")) == ("error", True)


async def test_a_journal_is_not_read_while_a_daemon_writes_it(tmp_path: Path) -> None:
    root = made_node(tmp_path / "n")
    (root / "agreement" / "wal").write_bytes(log_of([b"one"])[:-1])
    with DataDirectory(root).locked():
        assert (await only("journal", root))[0] == "unmeasured"


@pytest.mark.parametrize("name", ["wal", "guard"])
async def test_a_journal_that_cannot_be_read_is_named(tmp_path: Path, name: str) -> None:
    root = made_node(tmp_path / "n")
    (root / "agreement" / "wal").write_bytes(log_of([]))
    (root / "agreement" / name).unlink(missing_ok=True)
    (root / "agreement" / name).mkdir()
    level, cause, advice = await only("journal", root)
    assert (level, f"cannot read {root / 'agreement' / name}" in cause) == ("error", True)
    assert "dmesg" in advice


async def test_a_guard_of_a_newer_program_is_named(tmp_path: Path) -> None:
    root = made_node(tmp_path / "n")
    (root / "agreement" / "wal").write_bytes(log_of([]))
    newer = bytearray(guard_of(b"so far"))
    newer[8:12] = (99).to_bytes(4)
    (root / "agreement" / "guard").write_bytes(newer)
    level, cause, _ = await only("journal", root)
    assert (level, "guard has format version" in cause) == ("error", True)


async def test_of_a_daemon_that_does_not_answer_nobody_knows_the_reach(tmp_path: Path) -> None:
    scene = replace(open_scene(made_node(tmp_path / "n"), None, ROOMY), runs="17")
    found = await outside._reach(scene, MADE, [])
    assert str(found.level) == "unmeasured"
    assert found.cause == "the daemon that runs here does not answer"


async def test_who_is_dialled_back_in_vain_is_told_which_port_to_open(tmp_path: Path) -> None:
    async def promise(_peer_id: PeerId, _body: bytes) -> bytes:
        return canonical.encode(["127.0.0.1", 0])  # and nobody rings

    scene = open_scene(made_node(tmp_path / "n"), None, ROOMY)
    node = Neighbour(0, chain_id=MADE.chain_id)
    node.requests.register(REQUEST, promise)
    async with running(node) as here:
        found = await reach.of_visit(scene, MADE, here.address)
    assert (str(found.level), "did not get through" in found.cause) == ("warning", True)
    assert "pass TCP port" in found.advice


async def test_a_node_that_dials_nobody_back_tells_nothing_of_the_reach(tmp_path: Path) -> None:
    scene = open_scene(made_node(tmp_path / "n"), None, ROOMY)
    async with running(Neighbour(0, chain_id=MADE.chain_id)) as here:
        found = await reach.of_visit(scene, MADE, here.address)
    assert (str(found.level), "did not try to dial" in found.cause) == ("unmeasured", True)
