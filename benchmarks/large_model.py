"""A large model in a real daemon: rounds, a snapshot, both kinds of restart, verify, export.

    python -m benchmarks.large_model [--parameters 33554432] [--codec int8] [--rounds 2]
        [--no-restart] [--dir DIR] [--json]

One validator alone, on the CPU, with a byte GPT whose windows are of eight tokens: a step costs
what weights, gradient and moments cost, and next to nothing else. Its optimiser lies in files.

    rounds      up to the snapshot, of the last of --rounds
    snapshot    stored, while the next round trains
    SIGTERM     the round under way is finished, and the node stops
    restart     from its files; killed (SIGKILL) while it trains
    restart     from its files again, until the round is certified
    verify      `daa-node checkpoint verify`
    export      `daa-node checkpoint export`, to safetensors

Of each part the peaks, in bytes a parameter: `anonymous` of all processes at a moment, which no
kernel can drop; `files` that are mapped, which it can; `disk` of the node's directory and of what
is exported, of blocks that are in use. Looks are LOOK_S apart, at the disk each tenth of them. What
the interpreters and libraries take is in them: 0.5 GB.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.memory_looks import Looking, memory_of
from daa_node.adapters import control_socket
from daa_node.cli import identity
from daa_node.cli.cluster import settings
from daa_node.cli.free_ports import free_ports
from daa_node.errors import UserError
from daa_node.training.model_config import ModelConfig

LOOK_S = 0.2
DISK_EACH = 10  # looks
POLL_S = 0.5
END_S = 4 * 3600.0  # of one part
BLOCK_BYTES = 512  # of st_blocks
CONTEXT, HEADS = 8, 8
BILLION = ModelConfig(width=2048, depth=20, heads=HEADS, context=CONTEXT)
JOB = """
name: large
model: {kind: byte_gpt, width: %d, depth: %d, heads: %d, context: %d}
inner: {batch_size: 1}
evaluation: {windows: 1, batch_windows: 1}
rounds: {inner_steps_max: 1, window_ms: 14400000, exec_ms: 14400000}
updates: {rule: mean, codec: %s, error_feedback: %s}
spot_checks: {share: [0, 1]}
checkpoints: {snapshot_every: %d}
end: {rounds: 1000}
"""
# A worker that gets no CPU, on a machine that others use, does not hang.
HOST = """
trainer: {device: cpu, threads: %d, optimiser_in: files, heartbeat_timeout_s: 600,
          start_timeout_s: 3600, order_timeout_s: 14400}
"""
Row = dict[str, object]


class Peaks:
    """Of a process and of those that it started: the most that any look has seen."""

    def __init__(self, pid: int, folders: list[Path]) -> None:
        self._pid, self._folders = pid, folders
        self.anonymous = self.files = self.disk = 0
        self.of_process: dict[str, int] = {}
        self._count = 0

    def look(self) -> None:
        anonymous = files = 0
        for depth, pid in _family(self._pid):
            one = memory_of(pid)
            anonymous += one.get("RssAnon", 0)
            files += one.get("RssFile", 0) + one.get("RssShmem", 0)
            name = "itself" if depth == 0 else "its workers"
            self.of_process[name] = max(self.of_process.get(name, 0), one.get("RssAnon", 0))
        self.anonymous, self.files = max(self.anonymous, anonymous), max(self.files, files)
        if self._count % DISK_EACH == 0:
            self.disk = max(self.disk, sum(map(_disk_bytes, self._folders)))
        self._count += 1


def _family(pid: int, depth: int = 0) -> Iterator[tuple[int, int]]:
    yield depth, pid
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return
    for child in children:
        yield from _family(int(child), depth + 1)


def _disk_bytes(folder: Path) -> int:
    total = 0
    for directory, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(os.path.join(directory, name)).st_blocks * BLOCK_BYTES
            except OSError:
                continue  # deleted meanwhile
    return total


def model_of(parameters: int) -> ModelConfig:
    """About so many; from a billion on the largest that was tried."""
    if parameters >= BILLION.parameter_count():
        return BILLION
    width = max(2**k for k in range(5, 12) if 12 * 4**k * 8 <= max(parameters, 12 * 4**5 * 8))
    depth = max(1, round(parameters / (12 * width * width)))
    return ModelConfig(width=width, depth=depth, heads=HEADS, context=CONTEXT)


class Node:
    """One daemon, ended with this process."""

    def __init__(self, root: Path, model: ModelConfig, options: argparse.Namespace) -> None:
        self.root, self.folder, self.out = root, root / "node", root / "out"
        self.count, self.rows = model.parameter_count(), list[Row]()
        self.process: subprocess.Popen[bytes] | None = None
        self.out.mkdir(parents=True)
        (port,) = free_ports(1)
        identity.create_node(self.folder, settings(port, []) + HOST % options.threads)
        record, job = root / "record", root / "job.yaml"
        record.write_text(
            identity.record_as_text(identity.make_record(identity.open_node(self.folder)))
        )
        shape = (model.width, model.depth, model.heads, model.context)
        owes = "true" if options.codec == "top_k" else "false"
        job.write_text(JOB % (*shape, options.codec, owes, options.rounds))
        words = ("genesis", "create", job, "--validator", record, "--dir", self.folder)
        command = self._command(*words, "--out", self.folder / "genesis.json")
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)

    def _command(self, *words: object) -> list[str]:
        return [sys.executable, "-m", "daa_node", *map(str, words)]

    @contextmanager
    def part(self, name: str, pid: int) -> Iterator[Row]:
        began = time.monotonic()
        row: Row = {"part": name}
        peaks = Peaks(pid, [self.folder, self.out])
        with Looking(peaks.look, LOOK_S):
            yield row
        row |= {"wall_s": round(time.monotonic() - began, 1)}
        for what in ("anonymous", "files", "disk"):
            row[what] = round(getattr(peaks, what) / self.count, 2)
        for which, peak in peaks.of_process.items():
            row[f"anonymous of {which}"] = round(peak / self.count, 2)
        self.rows.append(row)
        print(json.dumps(row), file=sys.stderr, flush=True)

    def start(self) -> int:
        with (self.root / "log").open("ab") as log:
            self.process = subprocess.Popen(
                self._command("run", "--dir", self.folder, "--with-parent"),
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
            )
        return self.process.pid

    def height(self) -> int:
        try:
            return int(control_socket.ask(self.folder / "control.sock", "status")["height"])
        except UserError:
            return 0

    def wait_until(self, what: str, height: int, training: bool = False) -> None:
        """`height` is certified, and with `training` the round above it has begun."""
        assert self.process is not None
        began = time.monotonic()
        while time.monotonic() - began < END_S:
            if self.process.poll() is not None:
                raise SystemExit(f"the node ended: {(self.root / 'log').read_text()[-2000:]}")
            if self.height() >= height and (not training or self._trains()):
                return
            time.sleep(POLL_S)
        raise SystemExit(f"{what}: not after {END_S:.0f} s")

    def wait_for_snapshot(self) -> None:
        began = time.monotonic()
        while "snapshot_stored" not in self._told():
            if time.monotonic() - began > END_S:
                raise SystemExit(f"no snapshot after {END_S:.0f} s")
            time.sleep(POLL_S)

    def _trains(self) -> bool:
        """Whether the newest start has begun a round, and not ended it."""
        names = ("node_started", "round_started", "update_sealed")
        return [name for name in self._told() if name in names][-1] == "round_started"

    def _told(self) -> list[str]:
        lines = (self.folder / "events.jsonl").read_text().splitlines()
        return [json.loads(line)["name"] for line in lines if line.endswith("}")]

    def stop(self, how: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(how)
        self.process.wait(END_S)

    def ask(self, name: str, *words: object) -> dict[str, Any]:
        command = self._command(*words, "--dir", self.folder, "--json")
        asked = subprocess.Popen(command, stdout=subprocess.PIPE)
        with self.part(name, asked.pid):
            said, _ = asked.communicate()
        if asked.returncode:
            raise SystemExit(f"{name} ended with {asked.returncode}: {said.decode()}")
        answer: dict[str, Any] = json.loads(said)
        return answer


def measure(node: Node, rounds: int, restart: bool) -> None:
    pid = node.start()
    for height in range(1, rounds + 1):
        with node.part(f"round {height}", pid):
            node.wait_until("a round", height)
    with node.part("snapshot", pid):
        node.wait_for_snapshot()
    if restart:
        with node.part("SIGTERM", pid):
            node.stop(signal.SIGTERM)
        pid = node.start()
        with node.part("restart after SIGTERM", pid):
            node.wait_until("training again", rounds, training=True)
        height = node.height()
        node.stop(signal.SIGKILL)
        pid = node.start()
        with node.part("restart after SIGKILL, and a round", pid):
            node.wait_until("a round after SIGKILL", height + 1)
    with node.part("end", pid):
        node.stop(signal.SIGTERM)
    answer = node.ask("verify", "checkpoint", "verify")
    node.rows[-1] |= {"height": answer.get("heights"), "ok": answer.get("ok")}
    out = node.out / "model.safetensors"
    answer = node.ask("export", "checkpoint", "export", "--out", out)
    node.rows[-1] |= {
        "height": answer["height"],
        "file": round(_disk_bytes(node.out) / node.count, 2),
    }


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    arguments.add_argument("--parameters", type=int, default=2**25)
    arguments.add_argument("--codec", default="int8")
    arguments.add_argument("--rounds", type=int, default=2, help="up to the snapshot")
    arguments.add_argument("--threads", type=int, default=1)
    arguments.add_argument("--no-restart", action="store_true")
    arguments.add_argument("--dir", type=Path, help="an empty folder; else one below /tmp")
    arguments.add_argument("--json", action="store_true")
    options = arguments.parse_args()
    with tempfile.TemporaryDirectory(prefix="large-", dir=options.dir) as room:
        model = model_of(options.parameters)
        node = Node(Path(room), model, options)
        try:
            measure(node, options.rounds, not options.no_restart)
        finally:
            if node.process is not None and node.process.poll() is None:
                node.process.kill()
                node.process.wait()
    rows: list[Row] = [*node.rows, {"part": "parameters", "count": node.count}]
    if options.json:
        print(json.dumps(rows))
        return
    for row in rows:
        print("  ".join(f"{name} {value}" for name, value in row.items()))


if __name__ == "__main__":
    main()
