"""Every command of the README does what the README says, in its order, as it is written there.

Two loopback addresses stand in for the two hosts. `make test` itself is the one command left out;
the demos with a page are started in tests/browser. On the first host everything is started as a
shell does; what it has shown to start by these words is forked from a warm parent from then on.
"""

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from daa_node.cli.free_ports import free_ports
from simnet.results.report import PAGE

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
HOSTS = {"alice": "127.0.0.1", "bob": "127.0.0.2", "carol": "127.0.0.3", "dora": "127.0.0.4"}
HOSTS |= {"erin": "127.0.0.5", "finn": "127.0.0.6"}
TRAINED_S = 300.0
SAMPLE = 'daa-node sample --prompt "ROMEO: " --tokens 200 --dir alice'
SIMULATION = ("simnet run partition --seed 7 --out result", "simnet report result")


def commands() -> list[str]:
    """The indented lines of the README, which are its commands."""
    fenced = re.sub(r"```.*?```", "", README, flags=re.DOTALL)
    return [line.strip() for line in fenced.splitlines() if line.startswith("    ")]


def section(first: str, last: str) -> list[str]:
    """The commands from `first` to `last`, both included."""
    all_commands = commands()
    return all_commands[all_commands.index(first) : all_commands.index(last) + 1]


def own_model() -> list[str]:
    return section(
        "daa-node init --dir dora", 'daa-node sample --prompt "ROMEO: " --tokens 60 --dir dora'
    )


def invited() -> list[str]:
    return section("daa-node init --dir erin", "daa-node join INVITE --dir finn")


def fenced(begins: str) -> str:
    """The content of the one fenced block that begins so."""
    blocks: list[str] = re.findall(r"```\w+\n(.*?)```", README, re.DOTALL)
    (found,) = [block for block in blocks if block.startswith(begins)]
    return found


class TwoHosts:
    """A directory with both hosts' files; each command runs with the settings of its host."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.warm = False  # whatever there is
        self.shown: set[str] = set()  # commands that a shell has started
        self.port = free_ports(1)[0]
        self.daemons: dict[str, subprocess.Popen[bytes]] = {}
        tools = directory / "bin"
        tools.mkdir()
        for name, module in (("daa-node", "daa_node"), ("simnet", "simnet.cli")):
            tool = tools / name
            tool.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m {module} "$@"\n')
            tool.chmod(0o755)
        self.path = f"{tools}:{os.environ['PATH']}"

    def environment(self, command: str) -> dict[str, str]:
        host = next((address for name, address in HOSTS.items() if name in command), "127.0.0.1")
        listen = f"[/ip4/{host}/tcp/{self.port}]"
        found = {k: v for k, v in os.environ.items() if not k.startswith("DAA_")}
        found |= {"PATH": self.path, "DAA_NETWORK__LISTEN": listen, "PYTHONPATH": str(ROOT)}
        # a connection from any of these hosts is seen to come from the first, where another one
        # listens: who dials back there would find nobody
        found |= {"DAA_NETWORK__ANNOUNCE": listen}
        # each host has its own cores: none takes what the others' training leaves of them
        found |= {"DAA_TRAINER__NICENESS": "0"}
        return found

    def started_by(self, command: str) -> list[str]:
        spoken = command.partition(" --")[0]
        if not command.startswith("daa-node ") or ">" in command:
            return ["/bin/sh", "-c", command]
        if self.warm or spoken in self.shown:
            return [sys.executable, "-m", "daa_node", *shlex.split(command, comments=True)[1:]]
        self.shown.add(spoken)
        return ["/bin/sh", "-c", f"exec {command}"]

    def do(self, command: str) -> str:
        """Run it as a shell would; a daemon goes on in the background."""
        if command.startswith(("daa-node run ", "daa-node join ")):
            name = command.split()[-1]
            with (self.directory / f"{name}.log").open("ab") as log:
                self.daemons[name] = subprocess.Popen(
                    self.started_by(command),
                    cwd=self.directory,
                    env=self.environment(command),
                    stderr=log,
                )
            return ""
        done = subprocess.run(
            self.started_by(command),
            cwd=self.directory,
            env=self.environment(command),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}{self.logs()}"
        return done.stdout

    def do_soon(self, command: str) -> str:
        """Again while a daemon that was just started is not ready for it."""
        deadline_s = time.monotonic() + TRAINED_S
        while True:
            try:
                return self.do(command)
            except AssertionError:
                if time.monotonic() > deadline_s:
                    raise
            time.sleep(1.0)

    def logs(self) -> str:
        return "".join(log.read_text() for log in sorted(self.directory.glob("*.log")))

    def wait_until(self, words: str, name: str) -> None:
        deadline_s = time.monotonic() + TRAINED_S
        while words not in (self.directory / f"{name}.log").read_text():
            assert self.daemons[name].poll() is None, self.logs()
            assert time.monotonic() < deadline_s, self.logs()
            time.sleep(0.2)


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory, warm: None) -> Iterator[TwoHosts]:
    made = TwoHosts(tmp_path_factory.mktemp("hosts"))
    yield made
    for daemon in made.daemons.values():
        daemon.send_signal(signal.SIGTERM)
    for daemon in made.daemons.values():
        try:
            daemon.wait(60)
        except subprocess.TimeoutExpired:
            daemon.kill()


@pytest.fixture
def warm_hosts(hosts: TwoHosts) -> Iterator[TwoHosts]:
    hosts.warm = True
    yield hosts
    hosts.warm = False


def test_every_command_of_the_readme_is_tested_here() -> None:
    tested = {
        "make demo",
        "make demo DEMO_ARGS=--browser",
        "make demo DEMO_ARGS=--dashboard",
        "make test",
        'export PATH="$PWD/.venv/bin:$PATH"',
        *section(
            "daa-node init --dir alice",
            "daa-node checkpoint export --dir alice --out model.safetensors",
        ),
        SAMPLE,
        *own_model(),
        *invited(),
        *SIMULATION,
        "daa-node config show --origin --dir alice",
    }
    assert set(commands()) == tested


def a_third_one_joins(hosts: TwoHosts) -> None:
    """The words in capitals are what the commands before said."""
    last = "daa-node validators propose leave --dir bob"
    given: dict[str, str] = {}
    for command in section("daa-node id --dir alice", last):
        for word, value in given.items():
            command = command.replace(word, value)
        said = hosts.do_soon(command)
        if command == "daa-node id --dir alice":
            shown = said.split()
            given |= {"ADDRESS": shown[-3], "CHAIN_ID": shown[-1]}
        elif "propose join" in command:
            given[" ID "] = f" {said.split()[0]} "
        elif command.startswith("daa-node validators --dir"):
            assert given[" ID "].strip() in said


@pytest.mark.long
def test_two_hosts_work_from_the_words_of_the_readme_alone(hosts: TwoHosts) -> None:
    for command in section("daa-node init --dir alice", "daa-node run --dir bob"):
        hosts.do(command)
    hosts.wait_until("job_ended", "alice")
    hosts.wait_until("job_ended", "bob")
    watching = section("daa-node status --dir alice", "daa-node logs -n 20 --dir alice")
    said = {command: hosts.do(command) for command in watching}
    a_third_one_joins(hosts)
    hosts.do("daa-node drain --dir bob")
    assert "validators  2 of 2 reachable, quorum 2" in said["daa-node status --dir alice"]
    assert HOSTS["bob"] in said["daa-node peers --dir alice"]
    assert len(said["daa-node rounds --dir alice"].splitlines()) >= 4
    assert "job_ended" in said["daa-node logs -n 20 --dir alice"]
    assert hosts.daemons["bob"].wait(60) == 0
    last = "daa-node checkpoint export --dir alice --out model.safetensors"
    for command in section("daa-node checkpoint list --dir alice", last):
        said[command] = hosts.do(command)
    assert "everything holds" in said["daa-node checkpoint verify --dir alice"]
    assert (hosts.directory / "model.safetensors").stat().st_size > 1_000_000
    assert hosts.do(SAMPLE).startswith("ROMEO: ")
    hosts.do("daa-node checkpoint verify --dir bob")
    assert "# default" in hosts.do("daa-node config show --origin --dir alice")


@pytest.mark.long
def test_a_model_of_ones_own_trains_from_the_words_of_the_readme_alone(
    warm_hosts: TwoHosts,
) -> None:
    hosts = warm_hosts
    code = hosts.directory / "code"
    code.mkdir()
    (code / "my_model.py").write_text(fenced("import torch"))
    (hosts.directory / "own.yaml").write_text(fenced("name: own-model"))
    *before, create, copy, run, sample = own_model()
    for command in before:
        hosts.do(command)
    config = hosts.directory / "dora" / "config.yaml"
    settings = config.read_text()
    allowed = "trainer:\n" + fenced("  allow_modules")
    config.write_text(settings.replace("trainer:\n", allowed, 1))
    for command in (create, copy, run):
        hosts.do(command)
    hosts.wait_until("job_ended", "dora")
    said = hosts.do(sample)
    assert said.startswith("ROMEO: ")
    assert len(said) > 40
    assert "everything holds" in hosts.do("daa-node checkpoint verify --dir dora")
    hosts.do("daa-node drain --dir dora")
    assert hosts.daemons["dora"].wait(60) == 0
    config.write_text(settings)
    with pytest.raises(
        AssertionError, match="set trainer.allow_modules: .my_model. in config.yaml"
    ):
        hosts.do("exec daa-node run --dir dora")


@pytest.mark.long
def test_a_friend_trains_from_the_words_of_the_readme_alone(warm_hosts: TwoHosts) -> None:
    hosts = warm_hosts
    *before, invite, join = invited()
    for command in before:
        hosts.do(command)
    text = hosts.do_soon(invite).strip()
    hosts.do(join.replace("INVITE", f"{text} --yes"))  # there is no terminal to ask at
    hosts.wait_until("contributors=2", "finn")
    hosts.do("daa-node drain --dir finn")
    assert hosts.daemons["finn"].wait(60) == 0
    assert "everything holds" in hosts.do("daa-node checkpoint verify --dir finn")
    assert "used up" in hosts.do("daa-node invite --list --dir erin")
    hosts.do("daa-node drain --dir erin")
    assert hosts.daemons["erin"].wait(60) == 0


def test_a_simulated_cluster_leaves_a_page(hosts: TwoHosts) -> None:
    run, report = SIMULATION
    assert "honest nodes end with the same roots: held" in hosts.do(run)
    if not PAGE.is_dir():
        pytest.skip("what draws the page is not built: make dashboard")
    hosts.do(report)
    assert '"node":3,' in (hosts.directory / "result" / "report.html").read_text()


def test_make_demo_runs_the_demo(tmp_path: Path) -> None:
    # -o: the virtual environment is this one, set up already
    done = subprocess.run(
        ["make", "-o", ".venv/.ready", "demo", f"BIN={Path(sys.executable).parent}"]
        + [f"DEMO_ARGS=--rounds 1 --nodes 1 --dir {tmp_path / 'd'}"],
        cwd=ROOT,
        env={k: v for k, v in os.environ.items() if not k.startswith("MAKE")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "round 1/1" in done.stdout
    assert "verified: 2 vertices" in done.stdout


def test_every_test_that_measures_a_threat_is_there() -> None:
    page = (ROOT / "docs" / "threats.md").read_text()
    named = set(re.findall(r"`([a-z_0-9/]+\.py)`", page))
    assert len(named) > 20
    tests = ROOT / "tests"
    places = [tests, ROOT, tests / "daa_node", tests / "daa_consensus"]
    assert [name for name in sorted(named) if not any((p / name).exists() for p in places)] == []
