"""A small run as `simnet run --out` leaves it, with something of all that can happen."""

import json
from pathlib import Path

from simnet.checks.outcome import (
    OUTCOME_FILE,
    ROUTERS,
    SCENARIO_FILE,
    TRACE_FILE,
    Invariant,
    Mark,
    Outcome,
)
from simnet.world.determinism import BROKEN, DOWN, FAULT, FINAL, LIAR, ROUND, UP, VIEW, VOTE, Trace
from simnet.world.links import NS
from simnet.world.scenario import FaultConfig, Scenario, WorkConfig
from simnet.world.scenario_file import as_text

SCENARIO = Scenario(
    name="two-halves",
    why="<what> & why",
    faults=(FaultConfig(kind="partition", at_s=2.0, for_s=3.0, nodes=(0, 1)),),
)
PASSAGE = {
    "node": 2,
    "nat": "symmetric",
    "passage": "relayed",
    "rounds": 5,
    "relays": 1,
    "relayed_with": [0, 3],
    "punched_with": [1],
}


def keep(folder: Path, nodes: int = 4, view: int = 7, adaptive: bool = True, seed: int = 3) -> Path:
    """`folder` is made, and gets the files of the run."""
    folder.mkdir(parents=True)
    with (folder / TRACE_FILE).open("w") as file:
        trace = Trace(file)
        trace.note(0, LIAR, node=1, kind="equivocator")
        for node in range(nodes):
            trace.note(NS, VIEW, node=node, view=view)
            trace.note(NS, VOTE, node=node, view=view, kind="nullify")
        trace.note(2 * NS, FAULT, kind="partition", begins=True, nodes=[0, 1], detail="halves")
        trace.note(3 * NS, DOWN, node=nodes - 1)
        trace.note(4 * NS, UP, node=nodes - 1)
        trace.note(5 * NS, FAULT, kind="partition", begins=False, nodes=[0, 1], detail="halves")
        trace.note(6 * NS, FINAL, node=2, view=view, height=1, payload="abort")
        trace.note(13 * NS // 2, BROKEN, name="progress", detail="nothing final for 9 s")
        trace.note(7 * NS, ROUND, node=2, height=1, vertex="ab" * 32, loss_nats=2.5, contributors=3)
    outcome = Outcome(
        scenario=SCENARIO.name,
        seed=seed,
        fidelity="light",
        nodes=nodes,
        virtual_s=7.0,
        wall_s=0.1,
        cpu_s=0.1,
        trace_hash=trace.digest(),
        final_roots=("cd" * 32,),
        invariants=(
            Invariant("one chain", True),
            Invariant("progress", False, "nothing final for 9 s"),
        ),
        sometimes=(Mark("view-nullified", 4),),
        facts={
            "participation": 0.75 if adaptive else 0.5,
            "tokens_per_s": 100.0 + seed if adaptive else 80.0,
            "loss_over_time": [(1.0, 3.0), (7.0, 2.5 if adaptive else 2.75)],
            "classes": {"node": {"share_of_time": {"training": 0.5, "waiting": 0.5}}},
            ROUTERS: [PASSAGE],
        },
    )
    scenario = SCENARIO.model_copy(update={"work": WorkConfig(adaptive=adaptive)})
    (folder / OUTCOME_FILE).write_text(json.dumps(outcome.as_json()))
    (folder / SCENARIO_FILE).write_text(as_text(scenario))
    return folder
