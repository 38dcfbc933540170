"""Files of the operator's own: what may be one, and what stays of them in the worker's cache."""

import gzip
import os
import threading
from pathlib import Path

import numpy as np
import pytest
from blake3 import blake3

from daa_node.errors import UserError
from daa_node.training.data_config import DataConfig
from daa_node.training.datasets import files
from daa_node.training.datasets.catalogue import open_examples
from daa_node.training.datasets.files import (
    LOCK,
    READ_BYTES,
    Wanted,
    check_there,
    digest_of_array,
    digest_of_content,
    keeping_what_is_used,
    kept_or_made,
    open_wanted,
)
from daa_node.training.model_config import ModelConfig

SMALL = ModelConfig(width=16, depth=1, heads=2, context=8)
TEXT = b"all the world's a stage " * 999


def names(cache: Path) -> set[str]:
    return {file.name for file in cache.iterdir()} - {LOCK}


def packed(directory: Path) -> Wanted:
    path = directory / "text.gz"
    path.write_bytes(gzip.compress(TEXT))
    return Wanted(path, None, "data.path")


def test_an_unpacked_file_that_was_damaged_is_unpacked_again(tmp_path: Path) -> None:
    wanted, cache = packed(tmp_path), tmp_path / "cache"
    first = open_wanted(wanted, cache)
    first.path.write_bytes(TEXT[:-1] + b"!")
    again = open_wanted(wanted, cache)
    assert again == first
    assert again.path.read_bytes() == TEXT
    assert names(cache) == {first.path.name}


def test_of_a_packed_file_that_is_refused_nothing_stays_in_the_cache(tmp_path: Path) -> None:
    path = packed(tmp_path).path
    with pytest.raises(UserError, match=r"text\.gz:1: .* the genesis names abab"):
        open_wanted(Wanted(path, "ab" * 32, "data.path"), tmp_path / "cache")
    assert names(tmp_path / "cache") == set()


def test_a_file_of_the_operators_that_is_refused_stays_where_it_is(tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_bytes(TEXT)
    with pytest.raises(UserError, match="the genesis names abab"):
        open_wanted(Wanted(path, "ab" * 32, "data.path"), tmp_path / "cache")
    assert path.read_bytes() == TEXT


def test_whatever_is_wrong_with_a_file_the_digest_that_it_should_have_is_told(
    tmp_path: Path,
) -> None:
    cut = tmp_path / "cut.gz"
    cut.write_bytes(gzip.compress(TEXT)[:-4])
    whole = tmp_path / "whole.gz"
    whole.write_bytes(gzip.compress(TEXT))
    no_cache = tmp_path / "no-cache"
    no_cache.write_text("a file")
    for path, cache, words in [
        (cut, tmp_path / "cache", "gzip cannot unpack it"),
        (tmp_path / "absent.txt", tmp_path / "cache", "No such file"),
        (None, tmp_path / "cache", "and no place"),
        (whole, no_cache, "cannot unpack"),
    ]:
        with pytest.raises(UserError, match=f"{words}.*{'ab' * 32}|{'ab' * 32}.*{words}") as told:
            open_wanted(Wanted(path, "ab" * 32, "data.path"), cache)
        assert str(told.value).count("ab" * 32) == 1


def test_to_look_for_a_file_reads_none_of_it_to_the_end(tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_bytes(TEXT)
    check_there(Wanted(path, "ab" * 32, "data.path"))
    with pytest.raises(UserError, match=f"No such file.*put it there.*{'ab' * 32}"):
        check_there(Wanted(tmp_path / "absent.txt", "ab" * 32, "data.path"))


def test_what_a_process_that_was_killed_left_half_made_goes(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    cache.mkdir()
    for left in (".unpacked-1234", ".5678", "..5678.4711"):
        (cache / left).write_bytes(TEXT)
    found = open_wanted(packed(tmp_path), cache)
    assert names(cache) == {found.path.name}
    (cache / ".left").write_bytes(TEXT)
    at_work = []

    def make(scratch: Path) -> None:
        at_work.append(names(cache))
        scratch.write_bytes(TEXT)

    kept_or_made(cache, "a", ".b", "try", make)
    assert at_work == [{found.path.name}], "before anything needs the room"


def test_what_a_start_does_not_use_goes_and_what_it_uses_or_makes_stays(tmp_path: Path) -> None:
    cache = tmp_path / "cache"

    def take(name: str) -> Path:
        return kept_or_made(cache, name, ".tokens", "try", lambda made: made.write_bytes(TEXT))[0]

    used, unused = take("used"), take("unused")
    for file in (used, unused):  # by a start of long ago, on a disk that notes no reading
        os.utime(file, ns=(0, file.stat().st_mtime_ns))
    with pytest.raises(UserError), keeping_what_is_used(cache):
        raise UserError("what it wants is not there")
    assert names(cache) == {used.name, unused.name}
    stamp_ns = used.stat().st_mtime_ns
    with keeping_what_is_used(cache):
        take("used")
        made = take("made")
    assert names(cache) == {used.name, made.name}
    assert used.stat().st_mtime_ns == stamp_ns
    assert (cache / LOCK).exists()


def test_of_two_that_want_one_file_at_a_time_one_makes_it(tmp_path: Path) -> None:
    """Each in its own thread, with a lock of its own, as two daemons that share a cache."""
    begun, go_on = threading.Event(), threading.Event()
    calls, found = [], []

    def make(scratch: Path) -> None:
        calls.append(scratch)
        begun.set()
        scratch.write_bytes(TEXT)
        assert go_on.wait(60)

    def want() -> None:
        found.append(kept_or_made(tmp_path / "cache", "a", ".b", "try", make))

    threads = [threading.Thread(target=want) for _ in range(2)]
    threads[0].start()
    assert begun.wait(60)
    threads[1].start()
    threads[1].join(0.2)
    assert threads[1].is_alive()  # it waits
    go_on.set()
    for thread in threads:
        thread.join(10)
    assert len(calls) == 1
    assert found[0] == found[1]
    assert found[0][0].read_bytes() == TEXT


def test_a_cache_that_holds_what_is_wanted_is_not_written_to(tmp_path: Path) -> None:
    first = open_wanted(packed(tmp_path), tmp_path / "cache")
    (tmp_path / "cache" / LOCK).unlink()
    assert open_wanted(packed(tmp_path), tmp_path / "cache") == first
    assert not (tmp_path / "cache" / LOCK).exists()


def test_a_full_disk_is_told_with_the_cache_and_leaves_nothing(tmp_path: Path) -> None:
    def make(scratch: Path) -> None:
        scratch.write_bytes(TEXT)
        raise OSError(28, "No space left on device")

    cache = tmp_path / "cache"
    with pytest.raises(UserError, match=f"cannot unpack x in {cache}: No space .* has room"):
        kept_or_made(cache, "a", "", "unpack x", make)
    assert names(cache) == set()


@pytest.mark.parametrize(
    ("kind", "changes", "content"),
    [
        ("text", {}, TEXT + b"\xff"),
        ("text", {}, b""),
        ("tokens", {}, TEXT),
        ("tokens", {"token_type": "uint32"}, TEXT + b"!"),
    ],
)
def test_a_packed_file_that_does_not_fit_is_named_as_the_operator_named_it(
    tmp_path: Path, kind: str, changes: dict[str, str], content: bytes
) -> None:
    path = tmp_path / "data.gz"
    path.write_bytes(gzip.compress(content))
    data = DataConfig.model_validate({"kind": kind, "path": path, **changes})
    with pytest.raises(UserError, match=rf"^{path}:1:"):
        open_examples(data, SMALL, tmp_path / "cache")


def test_a_pipe_in_place_of_a_file_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    for name in ("pipe", "pipe.gz"):
        os.mkfifo(tmp_path / name)
        with pytest.raises(UserError, match=rf"{name}:1: .* a pipe, .* data\.path"):
            open_wanted(Wanted(tmp_path / name, None, "data.path"), tmp_path / "cache")
        with pytest.raises(OSError, match="a pipe"):
            digest_of_content(tmp_path / name)
    with pytest.raises(UserError, match="Is a directory"):
        open_wanted(Wanted(tmp_path, None, "data.path"), tmp_path / "cache")


def test_a_file_that_unpacks_to_more_than_a_cache_may_hold_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "UNPACKED_BYTES_MAX", len(TEXT) - 1)
    with pytest.raises(UserError, match=f"unpacks to more than {len(TEXT) - 1} bytes"):
        open_wanted(packed(tmp_path), tmp_path / "cache")
    assert not names(tmp_path / "cache")
    monkeypatch.setattr(files, "UNPACKED_BYTES_MAX", len(TEXT))
    open_wanted(packed(tmp_path), tmp_path / "cache")


def test_of_the_cache_only_what_was_made_there_and_is_not_used_goes(tmp_path: Path) -> None:
    """Somebody may take it for the place of a host's own data."""
    wanted, cache = packed(tmp_path), tmp_path / "cache"
    for folder in ("a folder", ".a hidden one"):  # as a server of files has for what was there
        (cache / folder).mkdir(parents=True)
    for own in ("corpus.txt", "a folder/b.tokens", f"corpus-{'7' * 31}.tokens"):
        (cache / own).write_bytes(TEXT)
        os.utime(cache / own, (0, 0))
    theirs = {path.name for path in cache.iterdir()}
    with keeping_what_is_used(cache):
        first = open_wanted(wanted, cache).path.name
    with keeping_what_is_used(cache):
        assert open_wanted(wanted, cache).path.name == first
    assert names(cache) == {*theirs, first}
    os.utime(cache / first, (0, 0))  # the last use was long ago
    with keeping_what_is_used(cache):
        pass
    assert names(cache) == theirs


@pytest.mark.parametrize("dtype", ["<u1", "<u2", "<u4"])
def test_the_digest_of_an_array_is_that_of_all_its_bytes(dtype: str) -> None:
    array = np.arange(READ_BYTES + 5).astype(dtype)
    assert digest_of_array(array) == blake3(array.tobytes()).hexdigest()
