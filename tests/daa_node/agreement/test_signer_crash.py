"""A signing process killed at random moments, and one on a disk without room, both for real."""

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from daa_consensus.votes import Kind
from daa_dag import canonical
from daa_node.adapters.disk_journal import open_journal
from daa_node.adapters.offload import ThreadOffload
from daa_node.agreement.slots import entry_of

pytestmark = pytest.mark.usefixtures("warm_programs")

# Signs different bytes at every attempt, from the view that it finds after a restart; a line is
# printed only for what sign() returned, as a host sends only that.
CHILD = """
import json, os, sys
from pathlib import Path
import trio
from daa_consensus.bft.messages import OfferBody
from daa_consensus.committee import Domain
from daa_consensus.votes import Kind, Statement
from daa_node.adapters.disk_journal import open_journal
from daa_node.adapters.offload import ThreadOffload
from daa_node.adapters.system_clock import SystemEntropy
from daa_node.agreement.signer import Signer
from daa_node.errors import Refused, StorageFailed
from daa_node.identity.keys import NodeKeys

DOMAIN = Domain(bytes(32), 0, bytes(32))

def offer_of(number):
    names = os.urandom(32), os.urandom(32), os.urandom(32)
    return OfferBody(number, *names, 9, "int8", 8, 7, 6, 5, 4, ()).as_value()

class HastyJournal:
    '''Acknowledges a record before it is written: the planted bug.'''
    def __init__(self, journal):
        self._journal, self._held = journal, []
        self.load, self.rewrite = journal.load, journal.rewrite
        self.read_guard, self.write_guard = journal.read_guard, journal.write_guard
    async def append(self, record):
        self._held.append(record)
        if len(self._held) > 1:
            await self._journal.append(self._held.pop(0))

def say(**fields):
    sys.stdout.write(json.dumps(fields) + "\\n")
    sys.stdout.flush()

async def attempt(signer, kind, view, height, value):
    try:
        signed = await signer.sign(Statement(DOMAIN, kind, view, height, value))
    except Refused as refusal:
        say(refused=refusal.reason)
    except StorageFailed as failure:
        say(failed=str(failure))
    else:
        words = signed.statement.sign_bytes().hex()
        say(slot=[str(kind), view or height], words=words, signature=signed.signature.hex()[:64])

async def main():
    async with open_journal(Path(sys.argv[1]), ThreadOffload()) as journal:
        if sys.argv[2] == "hasty":
            journal = HastyJournal(journal)
        signer = Signer(NodeKeys.from_seed(b"crash"), DOMAIN.chain_id, journal, SystemEntropy())
        await signer.load()
        view = signer.restored().view
        say(view=view, quarantine=signer.quarantine)
        for view in range(max(view, 1), view + int(sys.argv[3])):
            async with trio.open_nursery() as nursery:  # some statements wait together
                nursery.start_soon(attempt, signer, Kind.OFFER, 0, view, offer_of(view))
                root = [os.urandom(32), os.urandom(32)]
                nursery.start_soon(attempt, signer, Kind.EXEC, 0, view, root)
                nursery.start_soon(attempt, signer, Kind.NOTARIZE, view, 1, os.urandom(32))
            kind = Kind.NULLIFY if os.urandom(1)[0] % 2 else Kind.FINALIZE
            block = None if kind is Kind.NULLIFY else os.urandom(32)
            await attempt(signer, kind, view, 1 if block else 0, block)

trio.run(main)
"""
KILLS = 10


def lines_of(output: str) -> Iterator[dict[str, object]]:
    for line in output.splitlines(keepends=True):
        if line.endswith("\n"):  # a kill may cut the last line
            yield json.loads(line)


def killed_run(
    directory: Path, journal: str, lines: int = 0, after_s: float = 0.0
) -> list[dict[str, object]]:
    """What the child said until a SIGKILL, so many lines and seconds behind its first one."""
    command = [sys.executable, "-c", CHILD, str(directory), journal, "10000"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        said = "".join(child.stdout.readline() for _ in range(1 + lines))
        time.sleep(after_s)
        child.kill()
        return list(lines_of(said + child.stdout.read()))


def finished_run(directory: Path, journal: str, views: int) -> list[dict[str, object]]:
    command = [sys.executable, "-c", CHILD, str(directory), journal, str(views)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    return list(lines_of(done.stdout))


def logged_words(directory: Path) -> set[str]:
    """Hex sign bytes of every statement in the log."""

    async def main() -> list[bytes]:
        async with open_journal(directory, ThreadOffload()) as journal:
            return await journal.load()

    words: set[str] = set()
    for record in trio.run(main):
        match canonical.decode(record, 2**22):
            case ["base", _, _, _, memory]:
                stored = memory["words"]
            case ["words", _, stored]:
                pass
        words |= {entry_of(value).signed.statement.sign_bytes().hex() for value in stored}
    return words


def unlogged(directory: Path, lines: list[dict[str, object]]) -> list[object]:
    logged = logged_words(directory)
    return [line["slot"] for line in lines if "slot" in line and line["words"] not in logged]


def test_no_kill_makes_a_signer_contradict_itself_or_forget_what_it_sent(tmp_path: Path) -> None:
    seed = int.from_bytes(os.urandom(4))
    rng = random.Random(seed)
    said: dict[str, tuple[object, object]] = {}
    refusals = 0
    for kill in range(KILLS):
        lines = killed_run(tmp_path, "sound", rng.randint(8, 60), rng.uniform(0.0, 0.02))
        assert lines[0]["quarantine"] is None, f"seed {seed}, kill {kill}: {lines[0]}"
        assert not unlogged(tmp_path, lines), f"seed {seed}, kill {kill}"
        refusals += sum("refused" in line for line in lines)
        for line in lines:
            if "slot" in line:
                slot, words = json.dumps(line["slot"]), (line["words"], line["signature"])
                assert said.setdefault(slot, words) == words, f"seed {seed}: {slot} signed twice"
    assert len(said) > 4 * KILLS
    assert refusals >= KILLS // 2, "every restart tried other bytes for the view it died in"
    kinds = {json.loads(slot)[0] for slot in said}
    assert kinds >= {str(kind) for kind in (Kind.NOTARIZE, Kind.EXEC, Kind.OFFER)}


def test_a_journal_that_acknowledges_too_early_is_found_out_and_quarantined(
    tmp_path: Path,
) -> None:
    # The planted bug shows that the test above can fail, and that the guard notices the loss.
    lines = finished_run(tmp_path, "hasty", 3)
    assert unlogged(tmp_path, lines)
    lines = killed_run(tmp_path, "sound")
    assert "ahead of the log" in str(lines[0]["quarantine"])
    assert not [line for line in lines if "slot" in line]


def small_disk(directory: Path) -> bool:
    """Mount a file system of 128 KiB there; False where that is not allowed."""
    command = ["mount", "-t", "tmpfs", "-o", "size=128k", "tmpfs", str(directory)]
    return subprocess.run(command, capture_output=True).returncode == 0


def test_on_a_full_disk_no_vote_is_sent_and_what_was_sent_is_kept(tmp_path: Path) -> None:
    if not small_disk(tmp_path):
        pytest.skip("mounting a small file system needs root")
    try:
        lines = finished_run(tmp_path / "agreement", "sound", 30)
        failed = [number for number, line in enumerate(lines) if "failed" in line]
        assert failed
        assert "No space left" in str(lines[failed[0]]["failed"])
        assert not [line for line in lines[failed[0] :] if "slot" in line]
        assert not unlogged(tmp_path / "agreement", lines)
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)
