"""What the verifier says of a little chain, for tests that damage or forge one."""

import os
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import trio

from daa_node.checkpoints.contents import ChainFacts
from daa_node.checkpoints.layout import NOTE, PUBLISHING, Group, encode_note
from daa_node.checkpoints.verify import verify_chain, verify_in_memory
from daa_node.checkpoints.verify_report import Anchor, Report
from daa_node.checkpoints.verify_windows import Count, verify_in_windows
from daa_node.packs.format import Entry, Head, ReadAt, entries_of, name_of, open_pack
from tests.daa_node.checkpoints.little_chain import FACTS, ChainMaker


def verify(chain: Path, facts: ChainFacts = FACTS) -> Report:
    return verify_chain(chain, facts)


def ignored(_count: int) -> None:
    """Bytes that were read, or are to be."""


def in_windows(
    chain: Path,
    anchor: Anchor | None = None,
    facts: ChainFacts = FACTS,
    on_bytes: Count = ignored,
) -> Report | None:
    """None where windows leave it to `in_memory`."""
    return verify_in_windows(chain, facts, anchor, on_bytes, ignored)


def in_memory(chain: Path, anchor: Anchor | None = None, facts: ChainFacts = FACTS) -> Report:
    return verify_in_memory(chain, facts, anchor, ignored, ignored)


def note_of(chain: Path) -> Path:
    """Where the note of an unfinished write lies."""
    return chain.parent / "work" / PUBLISHING / NOTE


def promise(chain: Path, *names: str) -> None:
    """Note a write under way of these files."""
    note_of(chain).parent.mkdir(parents=True, exist_ok=True)
    note_of(chain).write_bytes(encode_note([Group("add", names)]))


def record_in_pack(chain: Path, kind: str, share: float) -> tuple[Path, Entry, str]:
    """One of the largest pack that has some, so far down in their order; its `kind/name` last.

    Raises IndexError where there is none.
    """
    packs = sorted((chain / "packs").iterdir(), key=lambda path: -path.stat().st_size)
    for pack in packs:
        with opened(pack) as (head, read):
            found = [*entries_of(head, read, kind)]
        if found:
            entry = found[int(share * len(found))]
            return pack, entry, "/".join(name_of(entry.key))
    raise IndexError(kind)


@contextmanager
def opened(pack: Path) -> Iterator[tuple[Head, ReadAt]]:
    with pack.open("rb") as file:

        def read(offset: int, size_bytes: int) -> bytes:
            return os.pread(file.fileno(), size_bytes, offset)

        yield open_pack(pack.name, pack.stat().st_size, read), read


def named(report: Report) -> set[str]:
    return {problem.where for problem in report.problems}


def what_of(report: Report, where: str) -> str:
    return "; ".join(p.what for p in report.problems if p.where == where)


def made(directory: Path, play: Callable[[ChainMaker], Awaitable[None]]) -> Path:
    """A chain directory that `play` made."""
    maker = ChainMaker(directory)

    async def run() -> None:
        await maker.open()
        await play(maker)

    trio.run(run)
    return maker.chain_directory
