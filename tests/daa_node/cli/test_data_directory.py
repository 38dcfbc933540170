"""One directory serves one network at a time, and loses nothing of the others."""

import errno
import fcntl
import os
from pathlib import Path

import pytest

from daa_node.cli.data_directory import OF_A_NETWORK, STORE_VERSION, DataDirectory
from daa_node.errors import StorageFailed, UserError

RIGHT, WRONG = "a" * 64, "b" * 64


def filled(root: Path, chain: str) -> DataDirectory:
    """A node's directory after it was in the network of `chain`."""
    directory = DataDirectory(root)
    directory.create()
    (root / "agreement").mkdir()
    assert directory.take_up(chain) is None
    fill(root, chain)
    return directory


def fill(root: Path, chain: str) -> None:
    for name in OF_A_NETWORK:
        path = root / name if name.startswith("agreement") else root / name / "file"
        path.parent.mkdir(exist_ok=True)
        path.write_text(chain)


def held(root: Path) -> dict[str, str]:
    found = {}
    for name in OF_A_NETWORK:
        path = root / name if name.startswith("agreement") else root / name / "file"
        if path.exists():
            found[name] = path.read_text()
    return found


def test_what_a_node_has_of_a_network_comes_back_with_its_genesis(tmp_path: Path) -> None:
    directory = filled(tmp_path / "node", WRONG)
    root = directory.root
    (root / "agreement" / "begun").write_text("stays")
    for _ in range(2):
        assert directory.take_up(RIGHT) in (root / "networks" / WRONG[:16], None)
        assert held(root) == {}
    fill(root, RIGHT)
    directory.take_up(WRONG)
    assert set(held(root).values()) == {WRONG}
    directory.take_up(RIGHT)
    assert held(root) == dict.fromkeys(OF_A_NETWORK, RIGHT)
    assert (root / "agreement" / "begun").read_text() == "stays"


@pytest.mark.parametrize("then", [RIGHT, WRONG])
@pytest.mark.parametrize("is_written", [False, True])
@pytest.mark.parametrize("moved", range(len(OF_A_NETWORK) + 1))
def test_killed_in_the_middle_of_a_change_everything_is_where_its_network_looks(
    tmp_path: Path, moved: int, is_written: bool, then: str
) -> None:
    """From WRONG to RIGHT, of which the node has something, too; killed after so many moves."""
    directory = filled(tmp_path / "node", RIGHT)
    root = directory.root
    directory.take_up(WRONG)
    fill(root, WRONG)
    source, target = root / "networks" / RIGHT[:16], root
    if is_written:  # while what is of RIGHT comes back
        for name in OF_A_NETWORK:
            (root / "networks" / WRONG[:16] / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).rename(root / "networks" / WRONG[:16] / name)
        (root / "network").write_text(RIGHT)
    else:
        source, target = root, root / "networks" / WRONG[:16]
    for name in OF_A_NETWORK[:moved]:
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).rename(target / name)
    directory.take_up(then)
    assert held(root) == dict.fromkeys(OF_A_NETWORK, then)
    other = WRONG if then == RIGHT else RIGHT
    directory.take_up(other)
    assert held(root) == dict.fromkeys(OF_A_NETWORK, other)


def test_what_was_put_there_by_hand_is_never_written_over(tmp_path: Path) -> None:
    directory = filled(tmp_path / "node", RIGHT)
    by_hand = directory.root / "networks" / RIGHT[:16] / "chain"
    by_hand.mkdir(parents=True)
    (by_hand / "file").write_text("by hand")
    with pytest.raises(UserError, match="are both there"):
        directory.take_up(WRONG)
    assert held(directory.root) == dict.fromkeys(OF_A_NETWORK, RIGHT)
    assert (by_hand / "file").read_text() == "by hand"


def test_what_packs_may_come_into_is_refused_by_a_program_that_knows_none(tmp_path: Path) -> None:
    directory = DataDirectory(tmp_path / "node")
    directory.create()
    directory.complete()
    directory.version.write_text("1\n")
    directory.check()
    directory.upgrade()
    assert int(directory.version.read_text()) == STORE_VERSION == 2
    directory.upgrade()
    directory.check()


def test_a_name_that_the_disk_refuses_is_told_in_one_sentence(tmp_path: Path) -> None:
    """As a directory of another user is, which root would be let into."""
    with pytest.raises(UserError, match="cannot look into .*run daa-node as the owner of it"):
        DataDirectory(tmp_path / ("x" * 300)).check()


@pytest.mark.parametrize(
    ("number", "kind"),
    [(errno.EIO, StorageFailed), (errno.ESTALE, StorageFailed), (errno.EACCES, UserError)],
)
def test_a_disk_that_fails_is_no_wrong_setting(
    tmp_path: Path, number: int, kind: type[Exception]
) -> None:
    """A supervisor starts the node again, and leaves one whose settings are wrong."""

    class Failing(DataDirectory):
        def _check(self) -> None:
            raise OSError(number, os.strerror(number))

    with pytest.raises(kind, match="cannot look into"):
        Failing(tmp_path).check()


def test_what_stops_the_daemon_that_runs_can_be_pasted(tmp_path: Path) -> None:
    told = str(DataDirectory(tmp_path / "my node").in_use("17"))
    assert f"`daa-node drain --dir '{tmp_path}/my node'`" in told


def test_what_makes_a_node_where_none_is_can_be_pasted(tmp_path: Path) -> None:
    root = tmp_path / "my node"
    with pytest.raises(UserError, match=f"say with --dir where .*`daa-node init --dir '{root}'`"):
        DataDirectory(root).check()


def test_a_disk_that_takes_no_pid_is_told_in_one_sentence(tmp_path: Path) -> None:
    directory = DataDirectory(tmp_path)
    directory.lock.symlink_to("/dev/full")
    with pytest.raises(StorageFailed, match=r"cannot write .*node\.lock"), directory.locked():
        raise AssertionError("nobody holds it")


def test_a_start_waits_for_who_only_looks_and_not_for_a_daemon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each `status` of a node that does not run looks who holds its lock, by holding it."""
    directory = DataDirectory(tmp_path)
    with directory.locked():
        pass
    looking = os.open(directory.lock, os.O_RDONLY)
    fcntl.flock(looking, fcntl.LOCK_SH)
    monkeypatch.setattr("time.sleep", lambda _seconds: os.close(looking))
    with directory.locked():
        assert directory.holder() == str(os.getpid())
        with pytest.raises(UserError, match="is already running"), directory.locked():
            raise AssertionError("two hold it")
    assert directory.holder() is None
