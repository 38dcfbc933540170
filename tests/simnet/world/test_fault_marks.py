"""No kind of fault is drawn that never befalls anybody, and nobody notices."""

from collections.abc import Collection
from typing import Any

import pytest

from simnet.nodes.virtual.world import run_virtual
from simnet.results.sweep import MARKS_FROM_SEEDS, MUST_MEET, Sweep, Swept
from simnet.world.determinism import Trace
from simnet.world.fault_marks import OF_ALL_DISKS, OF_DISKS, OF_KINDS
from simnet.world.random_clusters import random_daemons
from simnet.world.random_faults import FRAGILE
from simnet.world.scenario import Scenario


def test_every_kind_that_seeds_draw_has_marks_which_a_long_sweep_must_meet() -> None:
    kinds, disks = set[str](), set[str | None]()
    for seed in range(200):
        for fault in random_daemons(seed).faults:
            marks = OF_DISKS[fault.disk] if fault.kind == "disk" else OF_KINDS[fault.kind]
            assert set(marks) <= set(MUST_MEET), fault
            kinds.add(fault.kind)
            disks |= {fault.disk} if fault.kind == "disk" else set()
    assert kinds == OF_KINDS.keys() | {"disk"}
    assert disks == OF_DISKS.keys()


def test_a_sweep_that_never_met_one_of_them_names_it() -> None:
    swept, whole = Swept(), Sweep()
    whole.met.update(mark for mark in swept.looked_for() if mark != "rename failed")
    assert whole.never_met(swept.wanted(MARKS_FROM_SEEDS)) == ["rename failed"]
    assert swept.wanted(MARKS_FROM_SEEDS - 1) == ()  # told, and no failure


SEEDS = range(5, 9)  # what befalls one of them may miss another
ONE = {"at_s": 1.5, "for_s": 2.5, "nodes": [1]}
FAULTS: dict[str, dict[str, Any]] = {
    "partition": {"shape": "isolate"},
    "hold": {},
    "slow": {"factor": 5},
    "loss": {"percent": 20},
    "pause": {},
    "clock": {"skew_ms": 500},
    "drain": {},
    "reorder": {"percent": 20},
}


@pytest.mark.long
@pytest.mark.parametrize("kind", FAULTS)
def test_a_fault_of_links_and_processes_befalls_whole_daemons(kind: str) -> None:
    fault = {**ONE, "kind": kind, **FAULTS[kind]}
    assert not _never_met(OF_KINDS[kind], [fault])


@pytest.mark.long
@pytest.mark.parametrize("disk", OF_DISKS)
def test_a_fault_of_disks_befalls_whole_daemons(disk: str) -> None:
    fault = {**ONE, "kind": "disk", "disk": disk, **({"factor": 20} if disk == "slow" else {})}
    nodes = [{"count": 4 if disk in FRAGILE else 2}]
    assert not _never_met(OF_DISKS[disk], [fault], nodes=nodes)


@pytest.mark.long
def test_power_cuts_leave_all_that_they_can() -> None:
    kills = [{**ONE, "kind": "kill", "at_s": 0.5 * k, "for_s": 0.3} for k in range(2, 16)]
    assert not _never_met({*OF_KINDS["kill"], *OF_ALL_DISKS}, kills, duration_s=8.1)


@pytest.mark.long
def test_messages_and_announcements_come_twice() -> None:
    fault = {"kind": "duplicate", "at_s": 0.5, "for_s": 14, "nodes": [0, 1], "percent": 5}
    nodes = [{"count": 2}, {"name": "outside", "count": 1, "role": "observer"}]
    assert not _never_met(OF_KINDS["duplicate"], [fault], duration_s=14.6, nodes=nodes)


def test_no_kind_is_forgotten_here() -> None:
    assert FAULTS.keys() | {"kill", "duplicate"} == OF_KINDS.keys()


def _never_met(wanted: Collection[str], faults: list[dict[str, Any]], **changes: Any) -> set[str]:
    """Which of these marks none of a few runs has; no run breaks anything."""
    fields = {
        "name": "one-kind",
        "fidelity": "light",
        "duration_s": 4.1,
        "nodes": [{"count": 2}],
        "topology": {"preset": "regional"},
        "work": {"kind": "training", "rounds": 200, "inner_steps_max": 1, "epoch_rounds": 2},
        "checks": {"heal_s": 90},
        "faults": faults,
    }
    missing = set(wanted)
    for seed in SEEDS:
        scenario = Scenario.model_validate({**fields, "seed": seed, **changes})
        outcome = run_virtual(scenario, Trace())
        assert [f"{each.name}: {each.detail}" for each in outcome.invariants if not each.ok] == []
        missing -= {mark.name for mark in outcome.sometimes if mark.hits}
        if not missing:
            break
    return missing
