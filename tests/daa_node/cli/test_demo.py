"""The demo from outside: its answer, its chain, taking it up again, and what it leaves behind."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
import trio
from safetensors.torch import load_file

from daa_dag.ids import ChainId
from daa_node import genesis
from daa_node.adapters.disk_journal import open_journal
from daa_node.adapters.key_files import load_keys
from daa_node.adapters.offload import ThreadOffload
from daa_node.adapters.system_clock import SystemEntropy
from daa_node.agreement.signer import Signer
from daa_node.cli import identity
from daa_node.cli.cluster import prepare
from daa_node.cli.data_directory import DataDirectory
from daa_node.cli.demo import check_page
from daa_node.errors import UserError
from tests.conftest import DemoRun
from tests.daa_node.cli.conftest import Command, make_node

DEMO = [sys.executable, "-m", "daa_node", "demo"]


def test_four_daemons_certify_every_round_and_end_on_one_model(demo_run: DemoRun) -> None:
    answer = demo_run.answer
    assert answer["schema_version"] == 1
    assert [line["height"] for line in answer["rounds"]] == [1, 2, 3]
    assert all(len(line["certified_by"]) >= 3 for line in answer["rounds"])
    assert all(len(line["contributors"]) >= 3 for line in answer["rounds"])
    assert all(line["bytes_sent_per_node"] > 100_000 for line in answer["rounds"])
    assert {node["model_root"] for node in answer["nodes"]} == {answer["final"]["model_root"]}
    assert [node["exit_code"] for node in answer["nodes"]] == [0] * 4
    assert len({node["pid"] for node in answer["nodes"]}) == 4
    assert len({node["node_id"] for node in answer["nodes"]}) == 4
    assert answer["final"]["height"] == 3
    assert answer["final"]["vertex_id"] == answer["rounds"][-1]["vertex_id"]
    assert 5.3 < answer["loss_nats_initial"] < 5.8  # ln(256) is 5.55
    assert answer["final"]["loss_nats"] < 3.0
    assert answer["wall_s"] > 0


def test_a_daemon_stays_small_beside_its_trainer(demo_run: DemoRun) -> None:
    for node in demo_run.answer["nodes"]:
        assert 10 * 10**6 < node["anon_rss_bytes"] < 150 * 10**6


def test_each_node_keeps_its_own_data_and_no_process_is_left(demo_run: DemoRun) -> None:
    for index, node in enumerate(demo_run.answer["nodes"]):
        assert node["dir"] == str(demo_run.directory / f"node-{index}")
        assert (demo_run.directory / f"node-{index}" / "chain" / "vertices").is_dir()
        assert not Path(f"/proc/{node['pid']}").exists()


def test_plain_lines_tell_of_every_round_where_there_is_no_terminal(demo_run: DemoRun) -> None:
    told = demo_run.told.splitlines()
    assert [line.split()[1] for line in told if line.startswith("round ")] == [
        "0/3",
        "1/3",
        "2/3",
        "3/3",
    ]
    assert "\x1b" not in demo_run.told


def test_any_node_verifies_and_lists_the_same_chain(demo_run: DemoRun, command: Command) -> None:
    seen = set()
    for index in range(4):
        directory = demo_run.directory / f"node-{index}"
        done = command("checkpoint", "verify", "--dir", directory, "--json")
        said = json.loads(done.out)
        assert (done.code, said["ok"], said["problems"]) == (0, True, [])
        assert (said["heights"], said["vertices"]) == (3, 4)
        assert said["bytes_read"] > 1_000_000
        listed = json.loads(command("checkpoint", "list", "--dir", directory, "--json").out)
        seen.add(tuple(row["vertex_id"] for row in listed["vertices"]))
    assert len(seen) == 1


def test_a_changed_byte_is_named_and_verification_fails(
    demo_run: DemoRun, command: Command, tmp_path: Path
) -> None:
    node = tmp_path / "node"
    shutil.copytree(demo_run.directory / "node-1", node, ignore=shutil.ignore_patterns("*.sock"))
    delta = next((node / "chain" / "deltas").iterdir())
    payload = bytearray(delta.read_bytes())
    payload[len(payload) // 2] ^= 1
    delta.write_bytes(payload)
    (node / "chain" / "blocks" / "stray.txt").write_text("x")
    done = command("checkpoint", "verify", "--dir", node, "--json")
    said = json.loads(done.out)
    assert (done.code, said["ok"]) == (1, False)
    named = {problem["where"] for problem in said["problems"]}
    assert f"deltas/{delta.name}" in named
    assert "blocks/stray.txt" in named
    assert f"PROBLEM {delta}" in command("checkpoint", "verify", "--dir", node).out


def test_an_anchor_is_a_whole_id_of_this_chain(demo_run: DemoRun, command: Command) -> None:
    words = ("checkpoint", "verify", "--dir", demo_run.directory / "node-0", "--json")
    answer = demo_run.answer["final"]
    for flag in ("--trust", "--from"):
        said = json.loads(command(*words, flag, answer["vertex_id"]).out)
        assert (said["ok"], said["tip"]) == (True, answer["vertex_id"])
        done = command(*words, flag, answer["vertex_id"][:16])
        assert (done.code, "all of its 64 hexadecimal digits" in done.err) == (2, True)
    done = command(*words, "--trust", "ab" * 32)
    said = json.loads(done.out)
    assert (done.code, said["problems"][0]["where"]) == (1, f"vertices/{'ab' * 32}")
    done = command(*words, "--trust", "ab" * 32, "--from", "ab" * 32)
    assert (done.code, "not both" in done.err) == (2, True)


def test_an_exported_model_loads_in_plain_torch(
    demo_run: DemoRun, command: Command, tmp_path: Path
) -> None:
    out = tmp_path / "model.safetensors"
    words = ("checkpoint", "export", "tip", "--dir", demo_run.directory / "node-2")
    said = json.loads(command(*words, "--out", out, "--json").out)
    tensors = load_file(out)
    assert sum(tensor.numel() for tensor in tensors.values()) == said["parameters"]
    assert all(tensor.dtype == torch.float32 for tensor in tensors.values())
    assert said["model_root"] == demo_run.answer["final"]["model_root"]
    again = command(*words, "--out", out)
    assert (again.code, "choose another --out" in again.err) == (2, True)


def test_one_vertex_is_shown_by_height_or_id(demo_run: DemoRun, command: Command) -> None:
    directory = demo_run.directory / "node-0"
    by_height = json.loads(command("checkpoint", "show", "2", "--dir", directory, "--json").out)
    prefix = by_height["vertex_id"][:12]
    by_id = json.loads(command("checkpoint", "show", prefix, "--dir", directory, "--json").out)
    assert by_id == by_height
    assert by_height["height"] == 2
    done = command("checkpoint", "show", "99", "--dir", directory)
    assert (done.code, "no vertex 99" in done.err) == (2, True)


def test_a_vertex_has_a_name_and_the_past_is_told_with_it(
    demo_run: DemoRun, command: Command, tmp_path: Path
) -> None:
    node = copied(demo_run, 0, tmp_path)
    before = sorted(path for path in (node / "chain").rglob("*"))
    done = command("checkpoint", "tag", "best", "2", "--dir", node)
    assert (done.code, done.out.split()[:3]) == (0, ["best", "is", "vertex"])
    for words in (("show", "best"), ("export", "best", "--out", tmp_path / "m"), ("log", "best")):
        assert command("checkpoint", *words, "--dir", node).code == 0
    said = json.loads(command("checkpoint", "log", "--dir", node, "--json").out)["vertices"]
    assert [row["height"] for row in said] == [3, 2, 1, 0]
    assert [row["tags"] for row in said] == [[], ["best"], [], []]
    assert said[0]["loss_micronats"] is None
    assert 5_300_000 < said[-1]["loss_micronats"] < 5_800_000
    lines = command("checkpoint", "log", "--graph", "-n", "2", "--dir", node).out.splitlines()
    assert [line.split()[:4] for line in lines] == [
        ["*", row["short"], "height", str(row["height"])] for row in said[:2]
    ]
    assert lines[1].endswith("(best)")
    picture = tmp_path / "past.svg"
    assert command("checkpoint", "log", "--svg", picture, "--dir", node).code == 0
    assert picture.read_text().count('<circle class="vertex"') == 4
    assert command("checkpoint", "log", "--svg", picture, "--dir", node).code == 2
    done = command("checkpoint", "log", "--svg", tmp_path / ("x" * 300), "--dir", node)
    assert (done.code, "too long" in done.err) == (1, True)
    trusted = ("checkpoint", "verify", "--trust", "best", "--dir", node)
    assert command(*trusted).code == 0  # and the chain is as it was
    assert sorted(path for path in (node / "chain").rglob("*")) == before
    assert command("checkpoint", "tag", "best", "1", "--dir", node).code == 2
    assert command("checkpoint", "tag", "best", "--delete", "--dir", node).code == 0
    assert json.loads(command("checkpoint", "tags", "--json", "--dir", node).out)["tags"] == []
    done = command("checkpoint", "show", "best", "--dir", node)
    assert (done.code, "is no height, no tag" in done.err) == (2, True)


def test_of_two_tags_given_at_once_both_are_kept(
    demo_run: DemoRun, command: Command, tmp_path: Path
) -> None:
    node = copied(demo_run, 0, tmp_path)
    tag = [sys.executable, "-m", "daa_node", "checkpoint", "tag", "--dir", str(node)]
    with DataDirectory(node).tags_held():
        second = subprocess.Popen([*tag, "second", "2"], stdout=subprocess.DEVNULL)
        with pytest.raises(subprocess.TimeoutExpired):
            second.wait(timeout=4)  # it waits for the first one to be done
    assert second.wait(timeout=60) == 0
    assert command("checkpoint", "tag", "first", "1", "--dir", node).code == 0
    said = json.loads(command("checkpoint", "tags", "--json", "--dir", node).out)["tags"]
    assert [each["name"] for each in said] == ["first", "second"]


def test_another_network_begins_where_a_vertex_of_this_one_stands(
    demo_run: DemoRun, command: Command, tmp_path: Path
) -> None:
    node = demo_run.directory / "node-1"
    out, weights = tmp_path / "fork.json", tmp_path / "fork.safetensors"
    words = ("checkpoint", "fork", "2", "--dir", node, "--out", out, "--weights", weights)
    record = make_node(command, tmp_path / "new")
    done = command(*words, "--validator", record, "--json")
    assert done.code == 0, done.err
    told = command("checkpoint", "show", "2", "--dir", node, "--json").out
    made = json.loads(out.read_text())
    assert made["body"]["job"]["model"]["weights_root"] == json.loads(told)["model_root"]
    assert json.loads(done.out)["chain_id"] in command("genesis", "show", "--file", out).out
    again = command(*words, "--validator", record)
    assert (again.code, "never overwritten" in again.err) == (2, True)
    out.unlink()
    again = command(*words, "--validator", record)
    assert (again.code, "choose another --weights" in again.err) == (2, True)
    weights.unlink()
    refused = command(*words, "--validator", tmp_path / "none.record")
    assert refused.code == 2
    assert not weights.exists()


def test_two_vertices_are_compared_either_way(demo_run: DemoRun, command: Command) -> None:
    words = ("checkpoint", "diff", "--dir", demo_run.directory / "node-1")
    there, back = (json.loads(command(*words, *pair, "--json").out) for pair in ("13", "31"))
    assert (there["from"]["height"], there["to"]["height"]) == (1, 3)
    assert there["squared_change"] == back["squared_change"] > 0
    assert [-each["largest_change"] for each in there["tensors"]] == [
        each["largest_change"] for each in back["tensors"]
    ]
    assert there["contributors"] == back["contributors"]
    assert sum(each["rounds"] for each in there["contributors"]) >= 2 * 3
    assert there["rules"] == [{"rule": "trimmed_mean", "f_agg": 1, "rounds": 2}]
    told = command(*words, "1").out  # to the newest
    assert "CHANGE / NORM" in told
    assert all(each["name"] in told for each in there["tensors"])
    same = json.loads(command(*words, "2", "2", "--json").out)
    assert (same["squared_change"], same["rounds"], same["contributors"]) == (0, 0, [])
    done = command(*words, "1", "9")
    assert (done.code, "no certified vertex 9" in done.err) == (1, True)


def test_a_new_node_takes_the_past_from_another_directory(
    demo_run: DemoRun, command: Command, tmp_path: Path
) -> None:
    there, node = demo_run.directory / "node-2", tmp_path / "new"
    assert command("init", "--dir", node, "--join", there / "genesis.json").code == 0
    words = ("checkpoint", "import", there, "--dir", node)
    said = json.loads(command(*words, "--json").out)
    assert (said["height_before"], said["height"], said["files_gone"]) == (0, 3, 0)
    assert said["vertex_id"] == demo_run.answer["final"]["vertex_id"]
    checked = json.loads(command("checkpoint", "verify", "--dir", node, "--json").out)
    assert (checked["ok"], checked["heights"]) == (True, 3)
    chain_id = ChainId(bytes.fromhex(checked["chain_id"]))
    assert trio.run(why_no_votes, node, chain_id) is None  # a chain without votes looks like a loss
    assert command(*words).out == "nothing new is there: height 3 is here already\n"
    wrong = (node, "own chain"), ("none", "is no directory"), ("x" * 300, "is no directory")
    foreign = tmp_path / "foreign"
    (foreign / "chain" / "blocks").mkdir(parents=True)
    (foreign / "network").write_text("ab" * 32 + "\n")
    others = ((tmp_path, "holds no chain"), (foreign, f"of chain {'ab' * 8}, and"))
    for source, says in (*wrong, *others, (foreign / "chain", f"of chain {'ab' * 8}, and")):
        done = command("checkpoint", "import", source, "--dir", node)
        assert (done.code, says in done.err) == (2, True)
    with DataDirectory(node).locked():
        done = command(*words)
    assert (done.code, "a daemon is already running" in done.err) == (1, True)


async def why_no_votes(node: Path, chain_id: ChainId) -> str | None:
    """What its next start makes of its log, beside a chain."""
    async with open_journal(node / "agreement", ThreadOffload()) as journal:
        signer = Signer(load_keys(node / "keys"), chain_id, journal, SystemEntropy())
        await signer.load(history_exists=True)
        return signer.quarantine


def copied(demo_run: DemoRun, index: int, tmp_path: Path) -> Path:
    node = tmp_path / f"node-{index}"
    shutil.copytree(
        demo_run.directory / f"node-{index}", node, ignore=shutil.ignore_patterns("*.sock")
    )
    return node


def test_a_directory_that_is_not_a_demo_is_left_alone(command: Command, tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("x")
    done = command("demo", "--dir", tmp_path)
    assert (done.code, f"{tmp_path} is not empty and holds no demo" in done.err) == (2, True)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


@pytest.mark.parametrize(
    ("flag", "asked", "there"), [("--nodes", 3, 4), ("--rounds", 9, 3), ("--seed", 1, 11)]
)
def test_a_demo_is_not_taken_up_with_other_flags(
    demo_run: DemoRun, command: Command, flag: str, asked: int, there: int
) -> None:
    done = command("demo", "--dir", demo_run.directory, flag, asked)
    assert (done.code, f"made with {flag} {there}, not {asked}" in done.err) == (2, True)


def test_who_wants_a_page_that_is_not_there_is_told_how_to_come_by_it(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"daa-compute\[gateway\].*`make page`"):
        check_page(tmp_path / "nothing", 8080)


def test_a_port_that_is_taken_is_told_before_anything_is_made(tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text("<!doctype html>")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UserError, match=f"port {port} .*with --browser-port"):
            check_page(tmp_path, port)
    check_page(tmp_path, port)


@pytest.mark.long
@pytest.mark.usefixtures("warm")
def test_ctrl_c_ends_every_process_and_the_demo_goes_on_later(tmp_path: Path) -> None:
    directory = tmp_path / "d"
    words = [*DEMO, "--nodes", "2", "--rounds", "5", "--dir", str(directory), "--json"]
    first = subprocess.Popen(words, stderr=subprocess.PIPE, text=True, start_new_session=True)
    assert first.stderr is not None
    for line in first.stderr:
        if line.startswith("round 0/"):
            break
    before = shared_memory()
    family = whole_family(first.pid, 4)  # two daemons, each with its trainer
    os.killpg(first.pid, signal.SIGINT)
    told = first.stderr.read()
    assert first.wait(60) == 130
    assert "goes on" in told
    assert not left_of(family)
    assert not left_in_memory(before)
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert [line["height"] for line in answer["rounds"]] == [1, 2, 3, 4, 5]


def make_hurried(directory: Path, nodes: int, rounds: int) -> None:
    """A demo to be taken up whose rounds have a few steps: who looks at daemons need not train."""
    job = prepare(directory, nodes, rounds, None).genesis.job
    few = job.rounds.model_copy(update={"inner_steps_max": 5})
    homes = [directory / f"node-{index}" for index in range(nodes)]
    records = [(str(home), identity.make_record(identity.open_node(home))) for home in homes]
    made = genesis.create(
        job.model_copy(update={"rounds": few}), records, bytes(genesis.NONCE_BYTES)
    )
    for each in (directory, *homes):
        (each / "genesis.json").write_text(made.as_text())


@pytest.mark.long
@pytest.mark.usefixtures("warm")
def test_a_daemon_that_is_killed_comes_back_and_catches_up_while_the_others_go_on(
    tmp_path: Path,
) -> None:
    directory = tmp_path / "d"
    make_hurried(directory, 4, rounds=6)
    words = [*DEMO, "--rounds", "6", "--dir", str(directory), "--json"]
    demo = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert demo.stderr is not None
    for line in demo.stderr:
        if line.startswith("round 1/"):
            break
    family = descendants(demo.pid)
    victim = next(pid for pid in family if is_open_in(pid, directory / "node-1" / "node.lock"))
    os.kill(victim, signal.SIGKILL)
    said, told = demo.communicate(timeout=240)
    assert demo.returncode == 0, told
    lines = told.splitlines()
    gone = next(i for i, line in enumerate(lines) if line.startswith("node-1 is gone (SIGKILL)"))
    back = next(i for i, line in enumerate(lines) if line.startswith("node-1 has caught up"))
    assert (
        gone < next(i for i, line in enumerate(lines) if "node-1 is started again" in line) < back
    )
    answer = json.loads(said)
    assert [node["restarts"] for node in answer["nodes"]] == [0, 1, 0, 0]
    assert len({node["model_root"] for node in answer["nodes"]}) == 1
    assert not left_of([*family, *descendants(demo.pid)])


@pytest.mark.long
@pytest.mark.usefixtures("warm")
def test_a_daemon_that_falls_again_and_again_is_reported_with_its_last_words(
    tmp_path: Path,
) -> None:
    directory = tmp_path / "d"
    words = [*DEMO, "--nodes", "2", "--rounds", "50", "--dir", str(directory)]
    demo = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert demo.stdout is not None
    for line in demo.stdout:
        if line.startswith("round 0/"):
            break
    family = descendants(demo.pid)
    victim = next(pid for pid in family if is_open_in(pid, directory / "node-1" / "node.lock"))
    (directory / "node-1" / "config.yaml").write_text("nonsense: true\n")
    os.kill(victim, signal.SIGKILL)
    said, told = demo.communicate(timeout=240)
    assert demo.returncode == 1
    assert "node-1 is gone (SIGKILL)" in said
    assert f"the daemon in {directory / 'node-1'} ended (exit code 2), " in told
    assert "nonsense" in told
    assert not left_of(family)


def whole_family(pid: int, size: int, within_s: float = 60.0) -> list[int]:
    """Its descendants, once there are so many; one that died is started again by its parent."""
    deadline_s = time.monotonic() + within_s
    while len(family := descendants(pid)) < size:
        assert time.monotonic() < deadline_s, f"{family} are not {size} processes"
        time.sleep(0.05)
    return family


def left_of(family: list[int], within_s: float = 60.0) -> list[int]:
    """Which of these processes outlive the wait; a worker ends itself when its daemon is gone."""
    deadline_s = time.monotonic() + within_s
    while left := [pid for pid in family if is_alive(pid)]:
        if time.monotonic() > deadline_s:
            return left
        time.sleep(0.05)
    return []


def is_alive(pid: int) -> bool:
    """A zombie is dead: it only waits for whoever adopted it to notice."""
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


def descendants(pid: int) -> list[int]:
    """Every process below `pid`; what ends while we look has no children any more."""
    found, stack = [], [pid]
    while stack:
        try:
            tasks = list(Path(f"/proc/{stack.pop()}/task").iterdir())
        except FileNotFoundError:
            continue
        for task in tasks:
            try:
                children = [int(text) for text in (task / "children").read_text().split()]
            except (FileNotFoundError, ProcessLookupError):
                continue
            found += children
            stack += children
    return found


def is_open_in(pid: int, file: Path) -> bool:
    """A daemon has its directory's lock open, whatever command it was started by."""
    try:
        held = [os.readlink(each) for each in Path(f"/proc/{pid}/fd").iterdir()]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return str(file) in held


def shared_memory() -> set[str]:
    return set(os.listdir("/dev/shm"))


def left_in_memory(before: set[str], within_s: float = 60.0) -> set[str]:
    """What is new and stays; what tests beside this one share comes and goes."""
    deadline_s = time.monotonic() + within_s
    while left := shared_memory() - before:
        if time.monotonic() > deadline_s:
            return left
        time.sleep(0.05)
    return set()
