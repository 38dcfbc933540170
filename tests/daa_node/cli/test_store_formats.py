"""A file of a newer program is refused by name, and stays as it was."""

import json
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from daa_dag import canonical
from daa_dag.ids import digest_of
from daa_node.adapters.disk_records import RecordDirectory
from daa_node.adapters.journal_format import GUARD_MAGIC, LOG_MAGIC, guard_of, log_of
from daa_node.adapters.pack_directory import PackDirectory
from daa_node.adapters.sqlite_history import SqliteHistory
from daa_node.agreement import withdrawal
from daa_node.agreement.invite_book import InviteBook, encode_book
from daa_node.cli import cluster, identity
from daa_node.cli.data_directory import STORE_VERSION, DataDirectory
from daa_node.cli.store_formats import FORMATS, FORMATS_MAX, HEAD_BYTES, check_formats
from daa_node.contributors.kept import encoded
from daa_node.contributors.records import HealthRecords
from daa_node.disputes.shunning import Shunning
from daa_node.errors import StorageFailed, UserError
from daa_node.gateway.standing import Standings
from daa_node.observability.events import EventLog
from daa_node.packs import format as packed
from tests.daa_node.cli.conftest import Command
from tests.daa_node.cli.doctor.scenes import made_node, only
from tests.daa_node.network.neighbours import KEYS

PACK = digest_of(b"some pack").hex()
GENESIS = (Path(__file__).parents[2] / "golden" / "genesis.json").read_text()


def _a_pack() -> bytes:
    written = bytearray()
    writer = packed.PackWriter(written.extend)
    writer.add(bytes([0]) + digest_of(b"a vertex"), b"a vertex")
    writer.finish()
    return bytes(written)


def _a_history(root: Path) -> None:
    history = SqliteHistory(root / "history" / "rounds.sqlite")
    history.open()
    history.close()


def _put(root: Path, name: str, payload: bytes) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(payload)


def _filled(root: Path) -> Path:
    """A node's directory with each file that this program writes, as it writes it."""
    made_node(root)
    _put(root, "agreement/wal", log_of([b"a statement"]))
    _put(root, "agreement/guard", guard_of(b"where it stands"))
    _put(root, f"chain/packs/{PACK}", _a_pack())
    _put(root, "work/invites/book", encode_book(InviteBook()))
    _put(root, "work/withdrawal/retired", canonical.encode([withdrawal.VERSION]))
    _put(
        root,
        "work/health/contributors",
        encoded(HealthRecords(KEYS[4].node_id, lambda node: None, EventLog(lambda: 0))),
    )
    _put(root, "work/shunned/shunned", Shunning().encode())
    _put(root, "work/volunteers/volunteers", Standings(None).encode())
    _put(root, "work/calibration/calibration", canonical.encode([[], []]))
    _a_history(root)
    return root


def _number_at(offset: int) -> Callable[[bytes, int], bytes]:
    def changed(there: bytes, version: int) -> bytes:
        return there[:offset] + struct.pack(">I", version) + there[offset + 4 :]

    return changed


def _key(there: bytes, version: int) -> bytes:
    return there.replace(b"daa-key 1 ", b"daa-key %d " % version, 1)


def _begun(there: bytes, version: int) -> bytes:
    return b"daa-begun %d\n" % version + there


def _pack(there: bytes, version: int) -> bytes:
    return b"daa pk%02d" % version + there[8:]


def _record(there: bytes, version: int) -> bytes:
    return canonical.encode([version, b"what a later program keeps"])


# Each format by its path, and a file of it with another number.
OTHER: dict[str, Callable[[bytes, int], bytes]] = {
    "keys/ml_dsa.key": _key,
    "keys/ml_kem.key": _key,
    "keys/libp2p.key": _key,
    "agreement/begun": _begun,
    "agreement/wal": _number_at(len(LOG_MAGIC)),
    "agreement/guard": _number_at(len(GUARD_MAGIC)),
    "chain/packs/*": _pack,
    "history/rounds.sqlite": _number_at(60),
    "work/invites/book": _record,
    "work/withdrawal/retired": _record,
    "work/health/contributors": _record,
    "work/shunned/shunned": _record,
    "work/calibration/calibration": _record,
    "work/volunteers/volunteers": _record,
}
# Whoever changes a number here raises STORE_VERSION as well, in the same commit: an older program
# refuses the whole directory then, and need not know the file.
RELEASED = {2: dict.fromkeys(OTHER, 1)}


def test_the_number_of_the_whole_is_raised_with_that_of_any_file() -> None:
    now = {stored.pattern: stored.newest for stored in FORMATS}
    assert {version: files for version, files in RELEASED.items() if files == now} == {
        STORE_VERSION: now
    }


def test_what_this_program_writes_has_the_number_that_it_reads(tmp_path: Path) -> None:
    root = _filled(tmp_path / "node")
    check_formats(DataDirectory(root))
    for stored in FORMATS:
        (path,) = root.glob(stored.pattern)
        told = stored.version_of(path.read_bytes()[:100])
        # what has no number yet is of the first format
        assert told == stored.newest or (told, stored.newest) == (None, 1), path
    identity.open_node(root)


def _refused(root: Path) -> str:
    with pytest.raises(UserError) as refused:
        check_formats(DataDirectory(root))
    assert refused.value.exit_code == 2
    return str(refused.value)


@pytest.mark.parametrize("held", [".", "networks/0123456789abcdef"])
def test_a_file_of_a_newer_program_is_refused_by_name_and_stays_as_it_was(
    tmp_path: Path, held: str
) -> None:
    root = _filled(tmp_path / "node")
    assert {stored.pattern for stored in FORMATS} == set(OTHER)
    for pattern, changed in OTHER.items():
        (there,) = root.glob(pattern)
        whole = there.read_bytes()
        path = root / held / there.relative_to(root)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(changed(whole, 2))
        said = _refused(root)
        assert said.startswith(f"{path} was written by a newer daa-node: it is "), said
        assert "of format 2, this program reads up to 1; update the program, or " in said
        assert "\n" not in said
        # an older copy of what it has signed is never the way out
        assert ("put back" in said) is not pattern.startswith(("agreement/", "history/"))
        assert path.read_bytes() == changed(whole, 2)
        path.unlink()
        there.write_bytes(whole)
    check_formats(DataDirectory(root))


def test_a_file_of_before_the_first_format_is_refused_by_name(tmp_path: Path) -> None:
    root = _filled(tmp_path / "node")
    for pattern, changed in OTHER.items():
        if pattern == "history/rounds.sqlite":
            continue  # 0 is one that was only begun
        (path,) = root.glob(pattern)
        whole = path.read_bytes()
        path.write_bytes(changed(whole, 0))
        said = _refused(root)
        assert said.startswith(f"{path} is "), said
        assert "of format 0, this program reads from 1 on; run the program that wrote it" in said
        assert path.read_bytes() == changed(whole, 0)
        path.write_bytes(whole)


@pytest.mark.parametrize("broken", [b"", b"\x93", b"\xdc", b"daa", bytes(100), b"\xcc" * 100])
def test_what_is_damaged_is_left_to_its_own_reader(tmp_path: Path, broken: bytes) -> None:
    root = _filled(tmp_path / "node")
    for pattern in OTHER:
        (path,) = root.glob(pattern)
        path.write_bytes(broken)
    check_formats(DataDirectory(root))


@pytest.mark.parametrize("version", [2, 127, 128, 255])
def test_a_record_of_any_later_number_is_refused(tmp_path: Path, version: int) -> None:
    root = _filled(tmp_path / "node")
    _put(root, "work/invites/book", _record(b"", version))
    assert f"the book of invites of format {version}, " in _refused(root)


@pytest.mark.parametrize("items", [0, 20, 70_000])
def test_a_record_of_any_length_tells_its_number(items: int) -> None:
    (book,) = (stored for stored in FORMATS if stored.pattern == "work/invites/book")
    assert book.version_of(canonical.encode([2, *range(items)])[:HEAD_BYTES]) == 2


def test_a_number_that_no_release_will_have_is_damage(tmp_path: Path) -> None:
    """Its own reader sets it aside or mends it; nobody is sent for a newer program."""
    root = _filled(tmp_path / "node")
    for pattern in ("keys/ml_dsa.key", "agreement/begun", "agreement/wal", "history/rounds.sqlite"):
        path = root / pattern
        path.write_bytes(OTHER[pattern](path.read_bytes(), FORMATS_MAX + 1))
    check_formats(DataDirectory(root))


def test_a_run_with_such_a_file_ends_before_anything_is_written(
    command: Command, tmp_path: Path
) -> None:
    root = _filled(tmp_path / "node")
    _put(root, "agreement/wal", OTHER["agreement/wal"](log_of([b"a statement"]), 2))
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    ended = command("run", "--dir", root)
    assert ended.code == 2
    assert f"{root}/agreement/wal was written by a newer daa-node" in ended.err
    assert {path: path.read_bytes() for path in root.rglob("*") if path.is_file()} == before


async def test_the_doctor_says_so_as_well(tmp_path: Path) -> None:
    root = _filled(tmp_path / "node")
    _put(root, "work/invites/book", OTHER["work/invites/book"](b"", 3))
    level, cause, advice = await only("directory", root)
    assert level == "error"
    assert "the book of invites of format 3" in cause
    assert advice.startswith("Install the version that wrote it")


@pytest.mark.parametrize("version", [STORE_VERSION + 1, 0])
def test_a_directory_of_another_format_is_refused_whole(tmp_path: Path, version: int) -> None:
    root = _filled(tmp_path / "node")
    _put(root, "VERSION", f"{version}\n".encode())
    with pytest.raises(UserError, match=f"version {version}|says {version}") as refused:
        identity.open_node(root)
    assert str(root) in str(refused.value)
    assert (root / "VERSION").read_text() == f"{version}\n"


def test_a_genesis_and_a_demo_of_a_newer_program_are_refused_by_name(
    command: Command, tmp_path: Path
) -> None:
    document = json.loads(GENESIS)
    document["schema_version"] += 1
    path = made_node(tmp_path / "node") / "genesis.json"
    path.write_text(json.dumps(document))
    ended = command("run", "--dir", path.parent)
    assert ended.code == 2
    assert f"{path} has schema version {document['schema_version']}" in ended.err
    assert "update this program" in ended.err
    marker = tmp_path / cluster.MARKER
    marker.write_text(json.dumps({"version": cluster.MARKER_VERSION + 1, "nodes": 4}))
    ended = command("demo", "--rounds", "1", "--dir", tmp_path)
    assert ended.code == 2
    assert "a demo of a newer daa-node" in ended.err


def test_a_pack_of_a_newer_program_is_not_taken_for_a_damaged_one(tmp_path: Path) -> None:
    _put(tmp_path, f"chain/packs/{PACK}", _pack(_a_pack(), 2))
    store = RecordDirectory(tmp_path / "chain")
    with pytest.raises(StorageFailed, match=f"{PACK} was written by a newer daa-node.*update"):
        PackDirectory(store).has("vertices", digest_of(b"a vertex").hex())
    assert (tmp_path / "chain" / "packs" / PACK).read_bytes() == _pack(_a_pack(), 2)
