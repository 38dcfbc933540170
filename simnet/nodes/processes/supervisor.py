"""`simnet cluster up` and `down`: real daemons that outlive the command, kept by a supervisor.

    D/cluster.json   who the supervisor is, which holds a lock on it, and what it runs
    D/scenario.json  what is run                    D/supervisor.log  what went wrong
    D/node-<k>/      one node's directory, for `daa-node status --dir D/node-<k>`

The supervisor lets the scenario's faults come and go, and ends everything when it ends.
"""

import json
import os
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from time import monotonic, sleep
from typing import Any

from daa_node.errors import NodeError, UserError
from simnet.nodes.processes import kernel
from simnet.nodes.processes.cluster import running
from simnet.nodes.processes.leftovers import clear_dead, heard, lock, scratch
from simnet.nodes.processes.nodes import check_scenario
from simnet.nodes.processes.run import Run
from simnet.world.determinism import Trace
from simnet.world.scenario import Scenario

CLUSTER_FILE, SCENARIO_FILE, LOG_FILE = "cluster.json", "scenario.json", "supervisor.log"
UP_TIMEOUT_S = 180.0
DOWN_TIMEOUT_S = 30.0  # daemons are asked twice before they are killed
LOOK_S = 0.05


def up(scenario: Scenario, directory: Path) -> dict[str, Any]:
    """Start the cluster; returns once every daemon answers. Raises UserError."""
    check_scenario(scenario)
    clear_dead()
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise UserError(f"{directory} is not empty: choose another --dir, or remove it")
    directory.mkdir(parents=True, exist_ok=True)
    (directory / SCENARIO_FILE).write_text(scenario.model_dump_json())
    with heard(), (directory / LOG_FILE).open("wb") as told:
        process = subprocess.Popen(
            [sys.executable, "-m", __name__, str(directory.resolve()), str(os.getpid())],
            stdin=subprocess.DEVNULL,
            stdout=told,
            stderr=told,
            start_new_session=True,  # it outlives our terminal
        )
        try:
            deadline_s = monotonic() + UP_TIMEOUT_S
            while not (directory / CLUSTER_FILE).exists():
                if process.poll() is not None or monotonic() > deadline_s:
                    words = (directory / LOG_FILE).read_text()
                    raise UserError(f"the cluster does not come up:\n{words}", exit_code=1)
                sleep(LOOK_S)
        except BaseException:
            process.terminate()
            process.wait()
            raise
    answer: dict[str, Any] = json.loads((directory / CLUSTER_FILE).read_text())
    return answer


def down(directory: Path) -> dict[str, Any]:
    """Stop the cluster in `directory`, if one runs there, and clear what dead runs have left."""
    stopped = False
    path = directory / CLUSTER_FILE
    for number in (signal.SIGTERM, signal.SIGKILL):
        if _is_held(path):
            os.kill(json.loads(path.read_text())["pid"], number)
            stopped = True
        deadline_s = monotonic() + DOWN_TIMEOUT_S
        while _is_held(path) and monotonic() < deadline_s:
            sleep(LOOK_S)
    path.unlink(missing_ok=True)  # it was killed before it could
    return {"dir": str(directory), "stopped": stopped, "cleared": clear_dead()}


def _is_held(path: Path) -> bool:
    """Whether a supervisor lives that has written this: its pid is its own as long as it does."""
    try:
        held = lock(path)
    except FileNotFoundError:
        return False
    if held is not None:
        os.close(held)
    return held is None


def in_words(answer: dict[str, Any]) -> str:
    """How to reach what is up."""
    first = answer["nodes"][0]
    return "\n".join(
        [
            f"{len(answer['nodes'])} daemons run, ready in {answer['ready_s']:.2f} s, over "
            f"{answer['backend']}",
            f"  daa-node status --dir {first['dir']}      (and the other nodes)",
            f"  daa-node logs -f --dir {first['dir']}",
            f"  nsenter -n -t {first['pid']} ip addr      (into a node's network)",
            f"  simnet cluster down --dir {answer['dir']}",
        ]
    )


def _supervise(directory: Path, command_pid: int) -> None:
    """Until `cluster down`, which sends a signal. Until it is up, it ends with the command."""
    kernel.die_with_parent(command_pid)
    scenario = Scenario.model_validate_json((directory / SCENARIO_FILE).read_text())
    with ExitStack() as stack:
        stack.enter_context(heard())
        place = stack.enter_context(scratch())
        cluster = stack.enter_context(running(scenario, directory, place))
        run = Run(scenario, cluster, Trace())
        run.start()
        stack.callback(cluster.stop)
        path = directory / CLUSTER_FILE
        beside = path.with_suffix(".new")
        said = {
            "schema_version": 1,
            "dir": str(directory),
            "pid": os.getpid(),
            "backend": cluster.backend.name,
            "ready_s": round(run.ready_s, 3),
            "nodes": [{"dir": str(node.directory), "pid": node.pid} for node in cluster.nodes],
        }
        beside.write_text(json.dumps(said))
        lock(beside)  # held as long as we live
        kernel.outlive_parent()
        beside.replace(path)
        stack.callback(path.unlink, missing_ok=True)
        run.live(lambda now_ns: False)


if __name__ == "__main__":
    try:
        _supervise(Path(sys.argv[1]), int(sys.argv[2]))
    except NodeError as failed:
        sys.stderr.write(f"error: {failed}\n")
        raise SystemExit(1) from None
