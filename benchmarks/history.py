"""A chain of many rounds in one directory: its files and bytes, memory, and how soon it is open.

    python -m benchmarks.history --rounds 20000 --dir /tmp/months

Publishes vertices with blocks, signed certificates, deltas and snapshots of a model of a few
thousand parameters, by the daemon's own code, packs as a daemon does, opens the directory anew in a
process of its own, and asks it what commands on the past ask. Nothing is synced, or it would
measure the disk; nothing is trained. With `--proofs` there are proofs alone, for what a daemon
keeps in memory over very many rounds: one state and one delta for all of them, and random bytes of
their length for signatures, so that judging all of it would find them out, and is left out. On a
file system in memory that takes minutes.
"""

import argparse
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

import trio

from daa_dag.retention import Retention
from daa_node.checkpoints.certified import certified_chain
from daa_node.checkpoints.config import EPOCHS_WHOLE
from daa_node.checkpoints.export import replayed_state
from daa_node.checkpoints.files import ChainFiles
from daa_node.checkpoints.listing import own_view, view_chain
from daa_node.checkpoints.own_chain import own_chain
from daa_node.checkpoints.snapshots import Snapshots
from daa_node.checkpoints.verify import verify_chain
from daa_node.observability.events import EventLog
from tests.daa_node.checkpoints.little_chain import FACTS, SNAPSHOT_EVERY, ChainMaker
from tests.daa_node.checkpoints.proofs_alone import (
    NEVER,
    follow_members,
    play_round,
    without_states,
)


def anonymous_mb() -> float:
    """Of this process, in 10^6 bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024 / 1e6
    return 0.0


def files_of(directory: Path) -> tuple[int, int]:
    """How many, and their bytes as `du` counts them."""
    found = [path.stat() for path in directory.rglob("*") if path.is_file()]
    return len(found), sum(one.st_blocks * 512 for one in found)


def say(text: str) -> None:
    print(text, flush=True)


async def grow(
    maker: ChainMaker, rounds: int, every: int, retention: Retention, snapshot_every: int
) -> None:
    """Publish so many rounds; tell of every so many."""
    await maker.open()
    await follow_members(maker.chain)
    log = EventLog(lambda: 0, lambda event: None)
    snapshots = Snapshots(maker.chain, snapshot_every, retention, log)
    began_s, before_s, before = time.monotonic(), time.process_time(), 0
    for number in range(1, rounds + 1):
        await play_round(maker, snapshots, snapshot_every)
        # what a round leaves in the work store
        for kind in ("updates", "states") if snapshot_every == SNAPSHOT_EVERY else ():
            for root in (await maker.work.blob_roots(kind))[:-6]:
                await maker.work.delete_blob(kind, root)
        if number == 1000 or number % every == 0:
            files, size_bytes = files_of(maker.chain_directory)
            round_ms = 1e3 * (time.process_time() - before_s) / (number - before)
            before_s, before = time.process_time(), number
            say(
                f"round {number}: {files} files, {size_bytes / 1e6:.1f} MB, anonymous memory "
                f"{anonymous_mb():.1f} MB, {round_ms:.1f} ms of CPU a round since the last line, "
                f"{time.monotonic() - began_s:.0f} s"
            )


def opened(directory: Path) -> None:
    """What a start reads of the chain."""
    maker = ChainMaker(directory)
    before_mb, began_s = anonymous_mb(), time.monotonic()

    async def run() -> None:
        await maker.open()
        tip, _ = maker.chain.final_tip
        await maker.chain.resume_point()
        members = await follow_members(maker.chain)
        say(f"epoch {members.validators.now.epoch} has begun")
        say(f"tip: epoch {tip.epoch}, height {tip.height}")

    trio.run(run)
    say(
        f"opened in {time.monotonic() - began_s:.2f} s, "
        f"{anonymous_mb() - before_mb:.1f} MB of anonymous memory more"
    )


def verified(directory: Path) -> None:
    """All of it, by `checkpoint verify`'s own function."""
    began_s = time.monotonic()
    report = verify_chain(directory / "chain", FACTS)
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6
    say(
        f"verified {report.vertices} vertices, problems: {len(report.problems)}, in "
        f"{time.monotonic() - began_s:.0f} s, peak memory {peak_mb:.0f} MB"
    )


def asked(directory: Path) -> None:
    """What commands on the past take: for the newest state, and for five lines of the log."""
    chain = directory / "chain"
    for how, past_of in (("as left", own_chain), ("judged whole", certified_chain)):
        began_s = time.monotonic()
        past = past_of(ChainFiles(chain), FACTS)
        newest = past.find("tip")
        replayed_state(past, newest, FACTS.states)
        say(f"state of height {newest.height}, {how}: {time.monotonic() - began_s:.2f} s")
    for how, view_of in (("as left", own_view), ("all of it read", view_chain)):
        began_s = time.monotonic()
        view = view_of(chain)
        view.newest_of(view.find("tip"), 5)
        say(f"five lines of the log, {how}: {time.monotonic() - began_s:.2f} s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=2000)
    parser.add_argument("--every", type=int, default=1000, help="rounds from line to line")
    parser.add_argument("--dir", type=Path, required=True)
    parser.add_argument("--restorable", type=int, help="vertices; unless given, all")
    parser.add_argument("--light", action="store_true", help="one certificate of an old epoch")
    parser.add_argument("--proofs", action="store_true", help="no states, no real signatures")
    parser.add_argument("--step", choices=("all", "open", "ask", "verify"), default="all")
    arguments = parser.parse_args()
    if arguments.step == "open":
        return opened(arguments.dir)
    if arguments.step == "ask":
        return asked(arguments.dir)
    if arguments.step == "verify":
        return verified(arguments.dir)
    sync, os.fsync = os.fsync, lambda _file: None
    retention = Retention(arguments.restorable, EPOCHS_WHOLE if arguments.light else None)
    maker = ChainMaker(arguments.dir)
    snapshot_every = SNAPSHOT_EVERY
    if arguments.proofs:
        without_states(maker)
        snapshot_every = NEVER
    trio.run(grow, maker, arguments.rounds, arguments.every, retention, snapshot_every)
    os.fsync = sync
    for step in ("open",) if arguments.proofs else ("open", "ask", "verify"):
        command = [sys.executable, "-m", "benchmarks.history", "--dir", str(arguments.dir)]
        subprocess.run([*command, "--step", step], check=True)


if __name__ == "__main__":
    main()
