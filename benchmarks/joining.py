"""Trainers that join a running network by invite: how soon they count, and what the others feel.

    python benchmarks/joining.py [--validators 4] [--trainers 8] [--history 300] [--settle 10]
                                 [--step-s 0.5] [--width 32] [--kill-donor] [--dir D] [--json]

Every node is a real daemon on loopback. The validators train alone until `history` rounds are
certified. Then the trainers come, each by an invite of its own: `daa-node join INVITE --yes`. Of
each is told how many rounds were certified between its first connection and the first set that has
its update, and by how many the network went on since its invite was used; between the two its
process starts. Round times are of the first validator: medians of `settle` rounds before anybody
came, and after all have.

On a machine that all share, a round that computes gets longer with each node, whatever the network
does. So the model of this job waits while it trains, as a host does whose GPU works: each inner
step takes --step-s seconds of time and next to none of a CPU. Until the past is there it does not
wait. How busy the machine was, and how busy these nodes kept it, is told beside each time: where it
was more than half, the ratio says something of the machine, too. With --step-s 0 it never waits.

With --kill-donor the validator that gives most is killed (SIGKILL) twice, and comes back when the
trainer is in: while the last trainer but one follows proofs, and while the last one fetches a
state's chunks. These would be there in a moment on loopback. So the model is larger then (--width
1024, four megabytes of state), and the last trainer has a home's link: `network.download_mbit_s` is
8. Of each kill is told what the trainer had of the state just before, and what it was at after.
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

from daa_node.adapters import control_socket
from daa_node.cli import identity
from daa_node.cli.cluster import settings
from daa_node.cli.free_ports import free_ports
from daa_node.errors import UserError

POLL_S = 0.2
STALL_S = 240.0  # without a new round for so long, something is wrong
WIDTH, WIDTH_OF_CHUNKS = 32, 1024
HOME_MBIT_S = 8
JOB = """
name: joining
model: {kind: module, path: "paced:build", arguments: {width: %d}, context: 32}
rounds: {inner_steps_max: 4, window_ms: %d}
trainers: {admission: vouched, per_voucher: %d, max: 64}
updates: {rule: %s}
end: {rounds: 1000000}
"""

MODEL = """
import time
from pathlib import Path

import torch.nn.functional as F
from torch import nn

PACE = Path(__file__).with_name("pace")  # seconds a step


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.embedding = nn.Embedding(256, width)
        self.head = nn.Linear(width, 256)

    def forward(self, inputs, targets):
        if self.training:
            time.sleep(float(PACE.read_text()))
        return F.cross_entropy(self.head(self.embedding(inputs)).flatten(0, 1), targets.flatten())


def build(width):
    return Model(width)
"""
TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")

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


def status_of(root: Path) -> Event:
    """Empty while no daemon runs there."""
    try:
        return dict(control_socket.ask(root / "control.sock", "status"))
    except UserError:
        return {}


def height_of(root: Path) -> int:
    return int(status_of(root).get("height", 0))


@dataclass(frozen=True)
class Kill:
    """Of a validator, and what it hit."""

    donor: str
    gave_bytes: int  # since the trainer began with that part; others may have had some of it
    state_bytes: int  # that the trainer had by then
    state_bytes_due: int
    at_work_on: str  # what the trainer was at once the donor was gone


class Network:
    """Real daemons, ended with this process."""

    def __init__(self, root: Path, options: argparse.Namespace) -> None:
        self.root, self.options = root, options
        self.validators = [root / f"v{number}" for number in range(options.validators)]
        self.killed: set[Path] = set()
        self.trainers = [root / f"t{number}" for number in range(options.trainers)]
        self.processes: dict[Path, subprocess.Popen[bytes]] = {}

    def make(self) -> None:
        code, options = self.root / "code", self.options
        code.mkdir()
        (code / "paced.py").write_text(MODEL)
        self.pace(0.0)
        records = []
        for node, port in zip(self.validators, free_ports(len(self.validators)), strict=True):
            identity.create_node(node, settings(port, []))
            records.append(self.root / f"{node.name}.record")
            signed = identity.make_record(identity.open_node(node))
            records[-1].write_text(identity.record_as_text(signed))
        job, made = self.root / "job.yaml", self.root / "genesis.json"
        job.write_text(JOB % (options.width, options.window_ms, options.per_voucher, options.rule))
        words = ["genesis", "create", str(job), "--out", str(made)]
        for record in records:
            words += ["--validator", str(record)]
        command = [sys.executable, "-m", "daa_node", *words, "--dir", str(self.validators[0])]
        subprocess.run(command, check=True, env=self.environment(), stdout=subprocess.DEVNULL)
        for node in self.validators:
            shutil.copy(made, node / "genesis.json")

    def environment(self) -> dict[str, str]:
        """Every host allows the job's model."""
        return os.environ | {
            "DAA_TRAINER__ALLOW_MODULES": "[paced]",
            "DAA_TRAINER__MODULE_PATH": str((self.root / "code").resolve()),
        }

    def pace(self, step_s: float) -> None:
        """From now on each inner step takes so long."""
        new = self.root / "code" / "pace.new"
        new.write_text(str(step_s))
        new.replace(new.with_name("pace"))

    def start(self, node: Path, *words: str, mbit_s: int | None = None) -> None:
        environment = self.environment()
        if node not in self.validators:
            environment["DAA_NETWORK__LISTEN"] = "[/ip4/127.0.0.1/tcp/0]"
        if mbit_s is not None:
            environment["DAA_NETWORK__DOWNLOAD_MBIT_S"] = str(mbit_s)
        command = (sys.executable, "-m", "daa_node", *words, "--dir", str(node), "--with-parent")
        with (self.root / f"{node.name}.log").open("wb") as log:
            self.processes[node] = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=log, stderr=log, env=environment
            )

    @property
    def witness(self) -> Path:
        """A validator that has seen all."""
        return next(node for node in self.validators if node not in self.killed)

    def wait_for(self, height: int) -> None:
        newest, since_s = -1, time.monotonic()
        while (now := height_of(self.witness)) < height:
            if now > newest:
                newest, since_s = now, time.monotonic()
            if time.monotonic() - since_s > STALL_S:
                raise SystemExit(f"no round for {STALL_S:.0f} s after height {newest}")
            time.sleep(POLL_S)

    def inviter(self, number: int) -> Path:
        """All of them in turn."""
        return self.validators[number % len(self.validators)]

    def invite(self, number: int) -> str:
        validator = self.inviter(number)
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

    def sent_bytes(self) -> dict[Path, int]:
        """By each validator that runs, to anybody."""
        told = {node: status_of(node) for node in self.validators}
        return {node: int(said["bytes_sent"]) for node, said in told.items() if said}

    def kill_during(self, part: str, trainer: Path) -> Kill:
        """Kill who gives most while the trainer fetches `part`, a tenth of the state if chunks."""
        before, began_s = self.sent_bytes(), time.monotonic()
        while at_work_on(trainer) != part:
            self._wait_a_moment(trainer, began_s)
            if at_work_on(trainer) == "proofs":
                before = self.sent_bytes()
        here, due = state_of(trainer)
        while part == "chunks" and 10 * here <= due:
            self._wait_a_moment(trainer, began_s)
            here, due = state_of(trainer)
        sent = self.sent_bytes()
        donor = max(sent, key=lambda node: sent[node] - before.get(node, sent[node]))
        self.processes[donor].kill()
        self.processes[donor].wait()
        self.killed.add(donor)
        assert len(self.killed) < len(self.validators), "nobody is left who has seen all"
        return Kill(donor.name, sent[donor] - before[donor], here, due, at_work_on(trainer))

    def _wait_a_moment(self, trainer: Path, began_s: float) -> None:
        if at_work_on(trainer) == "done" or time.monotonic() - began_s > STALL_S:
            raise SystemExit(f"{trainer.name} is at {at_work_on(trainer)}: nobody could be killed")
        time.sleep(0.005)

    def cpu_s(self) -> float:
        """Of all these nodes and their workers, since they began."""
        return sum(_cpu_s_of(process.pid) for process in self.processes.values())

    def end(self) -> None:
        for process in self.processes.values():
            process.terminate()
        for process in self.processes.values():
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()


def at_work_on(trainer: Path) -> str:
    """`proofs`, `chunks` of a state, `done`, or `nothing` yet."""
    log = trainer / "events.jsonl"
    names = {event["name"] for event in events_of(trainer)} if log.exists() else set()
    if names & {"gap_crossed", "caught_up"}:
        return "done"
    if any((trainer / "work.tmp").glob("states.*.partial")):
        return "chunks"
    return "proofs" if "state_coming" in names else "nothing"


def state_of(trainer: Path) -> tuple[int, int]:
    """Bytes of a state that it has, and that it is to have; as it told last."""
    told = [event for event in events_of(trainer) if event["name"] == "state_coming"]
    return (told[-1]["bytes"], told[-1]["bytes_due"]) if told else (0, 0)


def _cpu_s_of(pid: int) -> float:
    """Of a process and those that it started; of one that is gone, none."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return 0.0
    own = sum(map(int, fields[11:15])) / TICKS_A_SECOND
    return own + sum(_cpu_s_of(int(child)) for child in children)


def machine_s() -> tuple[float, float]:
    """Seconds that all cores were busy, and that they were there."""
    ticks = [int(field) for field in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    idle = ticks[3] + ticks[4]
    return (sum(ticks) - idle) / TICKS_A_SECOND, sum(ticks) / TICKS_A_SECOND


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


def settled(network: Network, rounds: int) -> dict[str, float]:
    """The median of so many rounds from now on, and how busy the machine was meanwhile."""
    first = network.witness
    height, nodes_s, (busy_s, there_s) = height_of(first), network.cpu_s(), machine_s()
    network.wait_for(height + rounds)
    busy_s, there_s = machine_s()[0] - busy_s, machine_s()[1] - there_s
    times = round_times(first, height, height + rounds)
    return {
        "round_s": round(statistics.median(times), 3),
        "machine_busy": round(busy_s / there_s, 2),
        "nodes_busy": round((network.cpu_s() - nodes_s) / there_s, 2),
    }


def measure(network: Network, options: argparse.Namespace) -> dict[str, Any]:
    network.make()
    for node in network.validators:
        network.start(node, "run")
    network.wait_for(options.history)
    network.pace(options.step_s)
    network.wait_for(height_of(network.witness) + 2)  # those that began at the pace of before
    before = settled(network, options.settle)
    killed: dict[str, Kill] = {}
    parts = dict(zip(network.trainers[-2:], ("proofs", "chunks"), strict=False))
    for number, trainer in enumerate(network.trainers):
        part = parts.get(trainer) if options.kill_donor else None
        mbit_s = HOME_MBIT_S if part == "chunks" else None
        network.start(trainer, "join", network.invite(number), "--yes", mbit_s=mbit_s)
        if part is not None:
            killed[part] = network.kill_during(part, trainer)
        network.wait_until_in(trainer)
        if part is not None:
            donor = network.root / killed[part].donor
            network.start(donor, "run")
            while not status_of(donor):
                time.sleep(POLL_S)
        print(f"{trainer.name} is in a set", file=sys.stderr)
    after = settled(network, options.settle)
    arrivals = [
        arrival(trainer, network.witness, network.inviter(number))
        for number, trainer in enumerate(network.trainers)
    ]
    return {
        "history": options.history,
        "arrivals": [asdict(one) for one in arrivals],
        "before": before,
        "after": after,
        "ratio": round(after["round_s"] / before["round_s"], 3),
        "donor_killed": {part: asdict(kill) for part, kill in killed.items()},
        "cores": len(os.sched_getaffinity(0)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--validators", type=int, default=4)
    parser.add_argument("--trainers", type=int, default=8)
    parser.add_argument("--history", type=int, default=300)
    parser.add_argument("--settle", type=int, default=10)
    parser.add_argument("--step-s", type=float, default=0.5)
    parser.add_argument("--window-ms", type=int, default=10_000)
    parser.add_argument("--width", type=int)
    parser.add_argument("--per-voucher", type=int, default=3)
    parser.add_argument("--rule", default="mean")
    parser.add_argument("--kill-donor", action="store_true")
    parser.add_argument("--dir", type=Path)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    options.width = options.width or (WIDTH_OF_CHUNKS if options.kill_donor else WIDTH)
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
    for when in ("before", "after"):
        of = found[when]
        print(
            f"round {when}: {of['round_s']} s; {of['machine_busy']:.0%} of {found['cores']} cores "
            f"busy, {of['nodes_busy']:.0%} by these nodes"
        )
    print(f"ratio {found['ratio']}")
    for part, kill in found["donor_killed"].items():
        print(
            f"{kill['donor']} was killed among the {part}, of which it had given most "
            f"({kill['gave_bytes']:,} bytes): the trainer had {kill['state_bytes']:,} of "
            f"{kill['state_bytes_due']:,} bytes of a state, and was at {kill['at_work_on']} after"
        )


if __name__ == "__main__":
    main()
