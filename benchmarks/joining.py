"""Trainers that join a running network by invite: how soon they count, and what the others feel.

    python benchmarks/joining.py [--validators 4] [--trainers 8] [--history 300] [--settle 10]
                                 [--kill-donor] [--dir D] [--json]

Every node is a real daemon on loopback. The validators train alone until `history` rounds are
certified. Then the trainers come, each by an invite of its own: `daa-node join INVITE --yes`. Of
each is told how many rounds were certified between its first connection and the first set that has
its update, and by how many the network went on since its invite was used; between the two its
process starts. With --kill-donor the last validator is killed (SIGKILL) while the last trainer
fetches its state. Round times are of the first validator: medians of `settle` rounds before anybody
came, and after all have. All processes share this machine's cores: the ratio is an upper bound of
what joining costs where each has a machine of its own.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from daa_node import config_file, genesis
from daa_node.adapters import control_socket
from daa_node.adapters.system_clock import SystemEntropy
from daa_node.cli import identity
from daa_node.cli.cluster import settings
from daa_node.cli.free_ports import free_ports
from daa_node.errors import UserError
from daa_node.genesis import Job

POLL_S = 0.2
STALL_S = 240.0  # without a new round for so long, something is wrong
JOB = """
name: joining
model: {kind: byte_gpt, depth: 1, width: 32, heads: 2, context: 32}
rounds: {inner_steps_max: 4, window_ms: %d}
trainers: {admission: vouched, per_voucher: %d, max: 64}
updates: {rule: %s}
end: {rounds: 1000000}
"""

Event = dict[str, Any]


@dataclass(frozen=True)
class Arrival:
    """One trainer's."""

    rounds_after_first_packet: int
    rounds_after_invite: int
    seconds_after_start: float


def events_of(root: Path) -> Iterator[Event]:
    with (root / "events.jsonl").open() as file:
        for line in file:
            if line.endswith("\n"):
                yield json.loads(line)


def height_of(root: Path) -> int:
    try:
        return int(control_socket.ask(root / "control.sock", "status")["height"])
    except UserError:
        return 0


class Network:
    """Real daemons, ended with this process."""

    def __init__(self, root: Path, options: argparse.Namespace) -> None:
        self.root, self.options = root, options
        self.validators = [root / f"v{number}" for number in range(options.validators)]
        self.trainers = [root / f"t{number}" for number in range(options.trainers)]
        self.processes: dict[Path, subprocess.Popen[bytes]] = {}

    def make(self) -> None:
        records = []
        for node, port in zip(self.validators, free_ports(len(self.validators)), strict=True):
            identity.create_node(node, settings(port, []))
            records.append((str(node), identity.make_record(identity.open_node(node))))
        options = self.options
        text = JOB % (options.window_ms, options.per_voucher, options.rule)
        job = config_file.load("job", text, Job).value
        made = genesis.create(job, records, SystemEntropy().bytes(genesis.NONCE_BYTES))
        for node in self.validators:
            (node / "genesis.json").write_text(made.as_text())

    def start(self, node: Path, *words: str) -> None:
        listen = "[/ip4/127.0.0.1/tcp/0]"
        environment = os.environ | ({} if node in self.validators else _listening(listen))
        command = (sys.executable, "-m", "daa_node", *words, "--dir", str(node), "--with-parent")
        with (self.root / f"{node.name}.log").open("wb") as log:
            self.processes[node] = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=log, stderr=log, env=environment
            )

    def wait_for(self, height: int) -> None:
        newest, since_s = -1, time.monotonic()
        while (now := height_of(self.validators[0])) < height:
            if now > newest:
                newest, since_s = now, time.monotonic()
            if time.monotonic() - since_s > STALL_S:
                raise SystemExit(f"no round for {STALL_S:.0f} s after height {newest}")
            time.sleep(POLL_S)

    def invite(self, number: int) -> str:
        validator = self.validators[number % len(self.validators)]
        wanted: dict[str, object] = {"uses": 1, "expires_s": 3600}
        return str(control_socket.ask(validator / "control.sock", "invite", **wanted)["invite"])

    def wait_until_in(self, trainer: Path) -> None:
        began_s = time.monotonic()
        while time.monotonic() - began_s < STALL_S:
            if self.processes[trainer].poll() is not None:
                raise SystemExit((self.root / f"{trainer.name}.log").read_text())
            if (trainer / "events.jsonl").exists() and first_set(trainer) is not None:
                return
            time.sleep(POLL_S)
        raise SystemExit(f"{trainer.name} is in no set after {STALL_S:.0f} s")

    def kill_during_sync(self, donor: Path, trainer: Path) -> bool:
        """Whether a state was on its way to the trainer when the donor was killed."""
        began_s = time.monotonic()
        while time.monotonic() - began_s < STALL_S:
            log = trainer / "events.jsonl"
            names = [event["name"] for event in events_of(trainer)] if log.exists() else []
            if "state_coming" in names or "caught_up" in names:
                self.processes[donor].kill()
                return "gap_crossed" not in names
            time.sleep(0.02)
        return False

    def end(self) -> None:
        for process in self.processes.values():
            process.terminate()
        for process in self.processes.values():
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()


def _listening(where: str) -> dict[str, str]:
    return {"DAA_NETWORK__LISTEN": where}


def first_set(trainer: Path) -> Event | None:
    return next(
        (e for e in events_of(trainer) if e["name"] == "set_decided" and e.get("ours")), None
    )


def arrival(trainer: Path, validator: Path, inviter: Path) -> Arrival:
    own = list(events_of(trainer))
    entered = first_set(trainer)
    assert entered is not None
    met = next(event for event in own if event["name"] == "peer_joined")
    started = next(event for event in own if event["name"] == "trainer_started")
    name = identity.open_node(trainer).keys.node_id.hex()
    used = next(
        e for e in events_of(inviter) if e["name"] == "invite_used" and e["node_id"] == name
    )
    ends = [e["ts"] for e in events_of(validator) if e["name"] == "set_decided"]

    def sets_since(moment: float) -> int:
        return sum(moment < at <= entered["ts"] + 0.5 for at in ends)

    return Arrival(
        sets_since(met["ts"]), sets_since(used["ts"]), round(entered["ts"] - started["ts"], 1)
    )


def round_times(validator: Path, first: int, last: int) -> list[float]:
    return [
        event["wall_s"]
        for event in events_of(validator)
        if event["name"] == "round_finalized" and first < event["height"] <= last
    ]


def measure(network: Network, options: argparse.Namespace) -> dict[str, Any]:
    network.make()
    for node in network.validators:
        network.start(node, "run")
    first = network.validators[0]
    network.wait_for(options.history)
    before = round_times(first, options.history - options.settle, options.history)
    killed_midway = None
    for number, trainer in enumerate(network.trainers):
        network.start(trainer, "join", network.invite(number), "--yes")
        if options.kill_donor and trainer is network.trainers[-1]:
            donor = network.validators[-1]
            killed_midway = network.kill_during_sync(donor, trainer)
        network.wait_until_in(trainer)
    height = height_of(first)
    network.wait_for(height + options.settle)
    after = round_times(first, height, height + options.settle)
    inviters = network.validators
    arrivals = [
        arrival(trainer, first, inviters[number % len(inviters)])
        for number, trainer in enumerate(network.trainers)
    ]
    medians = statistics.median(before), statistics.median(after)
    return {
        "history": options.history,
        "arrivals": [asdict(one) for one in arrivals],
        "round_s_before": round(medians[0], 3),
        "round_s_after": round(medians[1], 3),
        "ratio": round(medians[1] / medians[0], 3),
        "donor_killed_midway": killed_midway,
        "cores": len(os.sched_getaffinity(0)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--validators", type=int, default=4)
    parser.add_argument("--trainers", type=int, default=8)
    parser.add_argument("--history", type=int, default=300)
    parser.add_argument("--settle", type=int, default=10)
    parser.add_argument("--window-ms", type=int, default=4000)
    parser.add_argument("--per-voucher", type=int, default=2)
    parser.add_argument("--rule", default="mean")
    parser.add_argument("--kill-donor", action="store_true")
    parser.add_argument("--dir", type=Path)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    root = options.dir or Path(tempfile.mkdtemp(prefix="daa-joining-"))
    root.mkdir(parents=True, exist_ok=True)
    network = Network(root, options)
    try:
        found = measure(network, options)
    finally:
        network.end()
        if options.dir is None:
            shutil.rmtree(root, ignore_errors=True)
    if options.json:
        print(json.dumps(found))
        return
    for number, one in enumerate(found["arrivals"]):
        print(
            f"trainer {number}: in a set {one['rounds_after_first_packet']} rounds after its first "
            f"packet, {one['rounds_after_invite']} after its invite was used, "
            f"{one['seconds_after_start']} s after its worker started"
        )
    print(
        f"round: {found['round_s_before']} s before, {found['round_s_after']} s after, ratio "
        f"{found['ratio']} on {found['cores']} cores"
    )


if __name__ == "__main__":
    main()
