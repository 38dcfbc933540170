"""`simnet sweep | replay | shrink` at the command line: what they print, and how they exit."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from typer.testing import CliRunner, Result

from daa_node.errors import UserError
from simnet.cli import app
from simnet.world.scenario_file import open_scenario

FAILING = """
name: stuck
nodes: [{count: 4}]
faults:
  - {kind: kill, at_s: 0.5, for_s: 0.2, nodes: [3]}
  - {kind: partition, at_s: 1, nodes: [0, 1]}      # and never heals
  - {kind: loss, at_s: 1, for_s: 0.5, percent: 5, nodes: [2]}
checks: {heal_s: 10}
"""


def simnet(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def test_a_failing_seed_is_printed_with_the_line_that_replays_and_shrinks(tmp_path: Path) -> None:
    file = tmp_path / "stuck.yaml"
    file.write_text(FAILING)
    swept = simnet("sweep", str(file), "--seeds", "2", "--from", "7", "--jobs", "1")
    assert swept.exit_code == 1
    assert "seed 7 BROKE: blocks become final once every fault healed" in swept.output
    line = f"simnet replay {file} --seed 7"
    assert line in " ".join(swept.output.split())

    replayed = simnet(*line.split()[1:])
    assert replayed.exit_code == 1
    assert "blocks become final once every fault healed: BROKEN" in replayed.output

    small = tmp_path / "small.yaml"
    shrunk = simnet("shrink", str(file), "--seed", "7", "--out", str(small))
    assert shrunk.exit_code == 0
    assert "3 faults, 1 needed" in shrunk.output
    assert [fault.kind for fault in open_scenario(str(small)).faults] == ["partition"]
    assert simnet("run", str(small)).exit_code == 1


def test_a_clean_sweep_says_how_long_it_took_what_it_met_and_how_soon_all_followed() -> None:
    done = simnet("sweep", "--seeds", "1", "--from", "7", "--jobs", "1")
    assert done.exit_code == 0
    assert "1 seeds in" in done.output
    assert "epoch changed: in" in done.output
    assert "after the last fault everybody had followed within" in done.output
    assert "  announcement published twice: in 0 runs" in done.output  # it is told of all
    replayed = simnet("replay", "--seed", "7", "--json")
    assert replayed.exit_code == 0
    assert json.loads(replayed.stdout)["fidelity"] == "light"


def test_who_runs_more_liars_than_are_survived_is_warned(tmp_path: Path) -> None:
    file = tmp_path / "beyond.yaml"
    head = "name: beyond\nduration_s: 1\nadversaries: [{kind: staller, nodes: [0, 1]}]\n"
    file.write_text(head + "checks: {finalizations_after_heal: 0}\n")
    warned = simnet("run", str(file))
    assert "warning: adversaries: nodes [0, 1] lie or may forget" in warned.stderr
    file.write_text(head + "checks: {finalizations_after_heal: 0, beyond_f: true}\n")
    assert "warning" not in simnet("run", str(file)).stderr


def test_shrinking_what_breaks_nothing_says_so(tmp_path: Path) -> None:
    done = simnet("shrink", "--seed", "3", "--out", str(tmp_path / "small.yaml"))
    assert done.exit_code == 1
    assert "breaks nothing" in done.output


@pytest.mark.parametrize(
    "arguments",
    [
        "sweep --seeds 0",
        "sweep --seeds 1 --from -1",
        "sweep --seeds 1 --jobs 0",
        "sweep --seeds 1 --fidelity process",
        "sweep --seeds 1 --fidelity heap",
        "run partition --fidelity heap",
        "replay --seed 0 --fidelity swift",
        "replay --seed -1",
        "replay --seed 9223372036854775808",
        "shrink --seed -1",
        "shrink --seed 0 --out /nowhere/small.yaml",
        "twins --sample -1",
        "run partition --out /dev/null",
        "compare straggler --factor seed=1,2",
    ],
)
def test_what_cannot_be_is_refused_before_anything_runs(arguments: str) -> None:
    done = simnet(*arguments.split())
    assert isinstance(done.exception, UserError) or done.exit_code == 2
    assert " in " not in done.stdout


def test_an_interrupt_ends_a_sweep_and_all_its_processes() -> None:
    command = [sys.executable, "-m", "simnet.cli", "sweep", "--seeds", "100000", "--jobs", "2"]
    # a group of its own: the terminal's Ctrl-C reaches every process of it
    sweep = subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
        # whoever runs the tests in the background may ignore interrupts
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        while len(workers := psutil.Process(sweep.pid).children()) < 2:
            assert sweep.poll() is None
            time.sleep(0.05)
        os.killpg(sweep.pid, signal.SIGINT)
        assert sweep.wait(timeout=120) == 130
        gone, alive = psutil.wait_procs(workers, timeout=60)
        assert (len(gone), alive) == (2, [])
    finally:
        if sweep.poll() is None:  # else it would go on for hours
            os.killpg(sweep.pid, signal.SIGKILL)


def test_a_wrong_word_is_told_in_one_line_and_each_command_in_a_whole_sentence() -> None:
    wrong = simnet("run", "--nope")
    assert wrong.exit_code == 2
    assert wrong.output.splitlines()[-1].startswith("Error: No such option: --nope")
    for group in ([], ["cluster"]):
        _, commands = simnet(*group, "--help").output.split("Commands:")
        assert "..." not in commands
        assert all(line.endswith(".") for line in commands.split("\n") if line)
