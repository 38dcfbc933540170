"""What a person reads who has written a bad scenario: the place, the line, and what was meant."""

import subprocess
import sys
from pathlib import Path

import pytest

from daa_node.errors import UserError
from simnet.world import scenario_file
from simnet.world.scenario import Scenario
from simnet.world.scenario_file import as_text, open_scenario, shipped

HEAD = "name: mine\n"


def refused(tmp_path: Path, text: str) -> str:
    """What is said of a file of this content, its folder left out."""
    path = tmp_path / "mine.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UserError) as caught:
        open_scenario(str(path))
    assert caught.value.exit_code == 2
    return str(caught.value).replace(f"{tmp_path}/", "")


def test_an_unknown_key_is_shown_with_a_caret_and_the_key_that_was_meant(tmp_path: Path) -> None:
    said = refused(tmp_path, HEAD + "topology:\n  preset: wan\n  jiter_ms: 3\n")
    assert said == (
        "mine.yaml:4:3: error: topology.jiter_ms: unknown key; did you mean 'jitter_ms'? "
        "known keys: preset, latency_ms, jitter_ms, mbit_s, loss_percent, reorder_percent, degree\n"
        "  4 |   jiter_ms: 3\n"
        "    |   ^^^^^^^^"
    )


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        ("checks: {zzz: 1}\n", "2:10:", "checks.zzz: unknown key"),
        (
            "checks: {zzz: 1}\n",
            "2:10:",
            "known keys: finalizations_after_heal, heal_s",
        ),
        ("preset: wan\n", "2:1:", "preset: unknown key; it belongs under 'topology'"),
        ("nodes:\n  - {count: 3, rol: observer}\n", "3:16:", "did you mean 'role'?"),
        ("faults:\n  - {kind: kill, at_s: 1, form_s: 2}\n", "3:27:", "did you mean 'for_s'?"),
        ("duration_s: long\n", "2:13:", "duration_s: input should be a valid number"),
        ("nodes: 4\n", "2:8:", "nodes: this is a list: write [...] (got 4)"),
        ("seed: -1\n", "2:7:", "seed: input should be greater than or equal to 0 (got -1)"),
        ("topology: {preset: lan}\n", "2:20:", "'local', 'regional', 'wan', 'mobile'"),
        (
            "fidelity: quick\n",
            "2:11:",
            "input should be 'heap', 'light', 'trio' or 'process' (got 'quick')",
        ),
        ("faults:\n  - {at_s: 3}\n", "3:5:", "faults.0.kind: this key is required"),
        ("faults:\n  - {kind: kil, at_s: 3}\n", "3:12:", "'partition', 'hold', 'slow'"),
        ("faults:\n  - {kind: kill}\n", "3:5:", "faults.0.at_s: this key is required"),
        (
            "nodes: [{count: 3}, {count: 2}]\nfaults:\n  - {kind: kill, at_s: 1, nodes: [4, 5]}\n",
            "4:38:",
            "faults.0.nodes.1: there are nodes 0 to 4 (got 5)",
        ),
        (
            "adversaries:\n  - kind: babbler\n    nodes: [-1]\n",
            "4:13:",
            "adversaries.0.nodes.0: there are nodes 0 to 3 (got -1)",
        ),
        (
            "changes:\n  - {kind: rotate, at_s: 1, node: 0, succesor: 5}\n",
            "3:38:",
            "did you mean 'successor'?",
        ),
        (
            "changes:\n  - {kind: join, at_s: 1, node: 9, stake: 1}\n",
            "3:33:",
            "changes.0.node: there are nodes 0 to 3 (got 9)",
        ),
        ("changes:\n  - {kind: join, at_s: 1, node: 1}\n", "3:5:", "join and stake name a `stake`"),
        (
            "changes:\n  - {kind: leave, at_s: 1, node: 1, successor: 2}\n",
            "3:5:",
            "rotate names a `successor`",
        ),
        (
            "nodes: [{count: 3}, {count: 1, nat: cone}]\n",
            "2:37:",
            "nodes.1.nat: `nat` takes `fidelity: process`",
        ),
        (
            "fidelity: heap\nwork: {kind: gossip}\nnodes: [{limits: {upload_mbit_s: 5}}]\n",
            "4:10:",
            "nodes.0.limits: `limits` are settings of daemons",
        ),
        (
            "fidelity: heap\nwork: {kind: gossip}\nnodes: [{trainer: {contribute: false}}]\n",
            "4:10:",
            "nodes.0.trainer: `trainer` is a setting of daemons",
        ),
        (
            "nodes: [{count: 3}, {count: 1, role: trainer, trainer: {contribute: false}}]\n",
            "2:47:",
            "nodes.1.trainer: a class with `role: trainer` has nothing to do",
        ),
        (
            "fidelity: process\nchanges: [{kind: leave, at_s: 1, node: 1}]\n",
            "1:1:",
            "`changes` take `fidelity: light` or `trio`",
        ),
        (
            "seed: 1\nfidelity: heap\n",
            "3:11:",
            "fidelity: daemons, which agree and train, take `fidelity: light`, `trio` or `process`",
        ),
        (
            "work: {kind: consensus}\n",
            "2:14:",
            "'training', 'gossip', 'fetch', 'upload' or 'rounds'",
        ),
        (
            "work: {kind: gossip}\n",
            "2:14:",
            "work.kind: gossip takes `fidelity: heap`",
        ),
        (
            "faults:\n  - {kind: kill, at_s: 1, nodes: [1], aim: leader}\n",
            "3:5:",
            "faults.0: `aim` says whom it befalls in place of `nodes`",
        ),
        (
            "faults:\n  - {kind: partition, at_s: 1, aim: leader}\n",
            "3:5:",
            "a partition of the shape isolate, one_way or flapping",
        ),
        ("faults:\n  - {kind: kill, at_s: 1, aim: boss}\n", "3:32:", "should be 'leader'"),
        (
            "fidelity: heap\nwork: {kind: gossip}\nfaults: [{kind: kill, at_s: 1, aim: leader}]\n",
            "4:37:",
            "faults.0.aim: who leads is known with `fidelity: light` or `trio`",
        ),
        (
            "fidelity: process\nfaults:\n  - {kind: kill, at_s: 1, aim: leader}\n",
            "4:32:",
            "faults.0.aim: who leads is known",
        ),
        ("nodes: [{count: 15000}, {count: 15000}]\n", "1:1:", "30000 nodes, at most 20000"),
        ("nodes: [{role: observer}]\n", "1:1:", "nobody is a validator"),
        ("seed: 1\nseed: 2\n", "3:1:", "duplicate key 'seed' (first at line 2)"),
        ("nodes: [{count: 3}\nseed: 1\n", "3:1:", "expected ',' or ']'"),
        ("nodes:\n\t- {count: 3}\n", "3:1:", "cannot start any token"),
        ("name2: {\n", "3:1:", "expected"),
        ("checks: {heal_s: .inf}\n", "2:18:", "should be a finite number"),
        ("topology: {latency_ms: [.nan, 3]}\n", "2:25:", "should be a finite number"),
        ("topology: {latency_ms: [-5, 3]}\n", "2:25:", "greater than or equal to 0 (got -5)"),
        ("topology: {latency_ms: [9, 3]}\n", "2:12:", "the least comes first"),
        (
            "faults: [{kind: partition, at_s: 1, shape: flapping, period_s: 1e-12}]\n",
            "2:64:",
            "greater than or equal to 0.001",
        ),
        ("adversaries: [{kind: twin, count: 4}]\n", "1:1:", "4 of 4 nodes lie"),
        (
            "faults: [{kind: kill, at_s: 1, shape: isolate}]\n",
            "2:39:",
            "faults.0.shape: `shape` says more of partition, not of kill: leave it out",
        ),
        (
            "faults: [{kind: slow, at_s: 1, percent: 3}]\n",
            "2:41:",
            "`percent` says more of loss, reorder, duplicate and attrition, not of slow",
        ),
        (
            "faults: [{kind: partition, at_s: 1, period_s: 3}]\n",
            "2:47:",
            "`period_s` is of `shape: flapping` alone",
        ),
        (
            "faults: [{kind: clock, at_s: 1, nodes: [0]}]\n",
            "2:10:",
            "faults.0: a clock goes wrong by `skew_ms`, by `drift_ppm`, or by both",
        ),
        (
            "faults: [{kind: partition, at_s: 1, nodes: [0, 1, 2, 3]}]\n",
            "2:37:",
            "faults.0.nodes: this parts nobody of 4 nodes: let `nodes` leave some out",
        ),
        (
            "faults: [{kind: partition, shape: bridge, at_s: 1, nodes: [2]}]\n",
            "2:52:",
            "faults.0.nodes: this parts nobody of 4 nodes",
        ),
        (
            "nodes: [{count: 3}]\nfaults: [{kind: partition, shape: bridge, at_s: 1}]\n",
            "3:10:",
            "faults.0: this parts nobody of 3 nodes",
        ),
        (
            "adversaries: [{kind: twin, nodes: [0]}, {kind: forger, nodes: [1, 0]}]\n",
            "2:67:",
            "adversaries.1.nodes.1: it lies already, further up",
        ),
        (
            "duration_s: 9\nfidelity: trio\nfaults: [{kind: kill, at_s: 9}]\n",
            "4:29:",
            "faults.0.at_s: the run is over after 9 s: let it begin before, or raise `duration_s`",
        ),
        (
            "fidelity: heap\nwork: {kind: gossip}\nfaults: [{kind: kill, at_s: 70}]\n",
            "4:29:",
            "faults.0.at_s: the run is over after 60 s",
        ),
        ("faults: [{kind: attrition, at_s: 60}]\n", "2:34:", "the run is over after 60 s"),
        (
            "checks: {passages: true}\n",
            "2:20:",
            "checks.passages: nobody is behind a router: give a class a `nat`",
        ),
        ("why: a\x00b\n", "2:7:", "this is not YAML: special characters are not allowed"),
        ("faults: " + "[" * 3000 + "]" * 3000, "1:1:", "lie in each other too deeply"),
    ],
)
def test_faults_are_shown_where_they_are(tmp_path: Path, text: str, place: str, words: str) -> None:
    said = refused(tmp_path, HEAD + text)
    assert any(line.startswith(f"mine.yaml:{place} error: ") for line in said.splitlines()), said
    assert words in said
    assert "^" in said


def test_all_faults_of_a_file_are_shown_in_its_order(tmp_path: Path) -> None:
    said = refused(tmp_path, HEAD + "seed: x\nwork: {kind: play}\nfaults: [{kind: kill}]\n")
    shown = [line.split(" error: ")[0] for line in said.splitlines() if " error: " in line]
    assert shown == ["mine.yaml:2:7:", "mine.yaml:3:14:", "mine.yaml:4:10:"]


def test_a_name_is_required_and_is_a_word(tmp_path: Path) -> None:
    assert "name: this key is required" in refused(tmp_path, "seed: 1\n")
    assert "mine.yaml:1:1: error: name: this key is required" in refused(tmp_path, "")
    assert "mine.yaml:1:7: error: name: " in refused(tmp_path, "name: Not A Word\n")


def test_a_missing_file_is_told_with_what_there_is() -> None:
    with pytest.raises(UserError, match="there is no file gosip") as caught:
        open_scenario("gosip")
    assert "did you mean 'gossip'?" in str(caught.value)
    assert "fetch" in str(caught.value)
    assert caught.value.exit_code == 2
    with pytest.raises(UserError) as caught:
        open_scenario("/nowhere/x.yaml")
    assert "did you mean" not in str(caught.value)


def test_what_is_no_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UserError, match="cannot be read"):
        open_scenario(str(path))


def test_flags_go_on_top_of_the_file_and_are_named_when_they_are_wrong(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(HEAD + "nodes: [{count: 3, speed: 2}, {count: 2}]\n", encoding="utf-8")
    found = open_scenario(str(path), nodes=7, seed=9, fidelity="trio")
    assert (found.node_count, found.seed, found.fidelity) == (9, 9, "trio")
    assert found.nodes[0].speed == 2
    with pytest.raises(UserError, match="flag --nodes: error: nodes.0.count"):
        open_scenario(str(path), nodes=0)
    with pytest.raises(UserError, match="flag --fidelity: error: fidelity"):
        open_scenario(str(path), fidelity="quick")
    path.write_text(HEAD, encoding="utf-8")
    assert open_scenario(str(path), nodes=7).node_count == 7


@pytest.mark.parametrize("name", sorted(shipped()))
def test_every_shipped_scenario_says_why_it_is_there(name: str) -> None:
    found = open_scenario(name)
    assert found.name == name
    assert len(found.why) > 20


def test_a_scenario_survives_being_written_and_read(tmp_path: Path) -> None:
    found = open_scenario("fetch")
    path = tmp_path / "again.yaml"
    path.write_text(as_text(found), encoding="utf-8")
    assert open_scenario(str(path)) == found


def test_the_command_exits_with_2_and_says_it_on_standard_error(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(HEAD + "sed: 1\n", encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "simnet.cli", "run", str(path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert f"{path}:2:1: error: sed: unknown key; did you mean 'seed'?" in done.stderr
    assert "Traceback" not in done.stderr


def test_nodes_are_numbered_through_the_classes() -> None:
    found = Scenario.model_validate({"name": "x", "nodes": [{"count": 2}, {"name": "b"}]})
    assert [found.group_of(i).name for i in range(6)] == ["node"] * 2 + ["b"] * 4
    with pytest.raises(IndexError):
        found.group_of(6)


def test_the_folder_of_shipped_scenarios_is_found() -> None:
    assert {"gossip", "fetch"} <= set(scenario_file.shipped())
