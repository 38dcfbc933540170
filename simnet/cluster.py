"""`simnet cluster up` and `down`: real daemons that outlive the command, kept by a supervisor.

    D/cluster.json   who the supervisor is and what it runs; there while the cluster is
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
from types import FrameType
from typing import Any

from daa_node.errors import NodeError, UserError
from simnet.determinism import Trace
from simnet.processes import kernel
from simnet.processes.cluster import Cluster, running
from simnet.processes.family import signal_process
from simnet.processes.leftovers import clear_dead, heard, noted, unheard
from simnet.processes.nodes import check_scenario
from simnet.processes.world import Run
from simnet.scenario import Scenario

SUPERVISOR_MODULE = "simnet.cluster"
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
    log = directory / LOG_FILE
    process = None
    with heard():
        try:
            with unheard(), log.open("wb") as told:
                process = subprocess.Popen(
                    [sys.executable, "-m", SUPERVISOR_MODULE, str(directory.resolve())],
                    stdin=subprocess.DEVNULL,
                    stdout=told,
                    stderr=told,
                    start_new_session=True,  # it outlives us and our terminal
                )
            _await(process, directory)
        except BaseException:
            if process is not None:
                process.terminate()
                process.wait()
            raise
    answer: dict[str, Any] = json.loads((directory / CLUSTER_FILE).read_text())
    return answer


def _await(process: "subprocess.Popen[bytes]", directory: Path) -> None:
    """Until the supervisor's cluster is up."""
    deadline_s = monotonic() + UP_TIMEOUT_S
    while not (directory / CLUSTER_FILE).exists():
        if process.poll() is not None or monotonic() > deadline_s:
            words = (directory / LOG_FILE).read_text()
            raise UserError(f"the cluster does not come up:\n{words}", exit_code=1)
        sleep(LOOK_S)


def down(directory: Path) -> dict[str, Any]:
    """Stop the cluster in `directory`, if one runs there, and clear what dead runs have left."""
    stopped = False
    path = directory / CLUSTER_FILE
    if path.exists():
        said = json.loads(path.read_text())
        pid, ticks = said["pid"], said["ticks"]
        for number in (signal.SIGTERM, signal.SIGKILL):
            stopped |= signal_process(pid, ticks, number)
            deadline_s = monotonic() + DOWN_TIMEOUT_S
            while kernel.start_ticks(pid) == ticks and monotonic() < deadline_s:
                sleep(LOOK_S)
        path.unlink(missing_ok=True)  # it was killed before it could
    return {"dir": str(directory), "stopped": stopped, "cleared": clear_dead()}


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


class _Told(Exception):
    """To stop, by a signal."""


def _supervise(directory: Path) -> None:
    """Until a signal, or `cluster down`, which sends one."""
    scenario = Scenario.model_validate_json((directory / SCENARIO_FILE).read_text())
    with ExitStack() as stack:
        note = stack.enter_context(noted(scenario.name))
        cluster = stack.enter_context(running(scenario, directory, note))
        cluster.warm()
        run = Run(scenario, cluster, Trace())
        run.start()
        stack.callback(cluster.stop)
        path = directory / CLUSTER_FILE
        stack.callback(path.unlink, missing_ok=True)
        beside = path.with_suffix(".new")
        beside.write_text(json.dumps(_facts(directory, cluster, run.ready_s)))
        beside.replace(path)
        run.live(lambda now_ns: False)


def _facts(directory: Path, cluster: Cluster, ready_s: float) -> dict[str, Any]:
    return {
        "schema_version": 1,
        "dir": str(directory),
        "pid": os.getpid(),
        "ticks": kernel.start_ticks(os.getpid()),
        "backend": cluster.backend.name,
        "ready_s": round(ready_s, 3),
        "nodes": [{"dir": str(node.directory), "pid": node.pid} for node in cluster.nodes],
    }


def _stop(_number: int, _frame: FrameType | None) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)  # once is enough: the end takes a while
    raise _Told


def main() -> None:
    """The supervisor: started by `up` alone."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _stop)
    try:
        _supervise(Path(sys.argv[1]))
    except _Told:
        return
    except NodeError as failed:
        sys.stderr.write(f"error: {failed}\n")
        raise SystemExit(1) from None


if __name__ == "__main__":
    main()
