"""The lines that a run goes through are counted, by package, and no others."""

from typer.testing import CliRunner

from daa_dag import retention
from daa_dag.retention import Retention, prunable
from simnet.cli import app
from simnet.results.line_coverage import LineCoverage, by_package, package_of

PLACE = "daa_dag/retention.py"


def seen_of(policy: Retention) -> set[int]:
    coverage = LineCoverage()
    prunable(policy, 8, [1, 2], [2, 4])  # nobody watches yet
    with coverage.watching():
        prunable(policy, 8, [1, 2], [2, 4])
        prunable(policy, 8, [1, 2], [2, 4])
    prunable(policy, 8, [1, 2], [2, 4])
    return coverage.seen.get(PLACE, set())


def test_lines_behind_an_early_return_are_not_seen() -> None:
    first = prunable.__code__.co_firstlineno
    keeps_all, lets_go = seen_of(Retention(None)), seen_of(Retention(2))
    assert keeps_all
    assert min(keeps_all | lets_go) > first
    assert keeps_all - lets_go
    assert lets_go - keeps_all
    assert len(lets_go) > len(keeps_all)


def test_what_nobody_ran_counts_as_not_seen_and_what_importing_runs_not_at_all() -> None:
    seen = {PLACE: seen_of(Retention(2))}
    rows = {name: (lines_seen, lines) for name, lines_seen, lines in by_package(seen)}
    assert rows["daa_dag"][0] == len(seen[PLACE])
    assert rows["daa_node/rounds"][0] == 0 < rows["daa_node/rounds"][1]
    everything = {PLACE: set(range(1, 10_000))}
    with open(retention.__file__, encoding="utf-8") as source:
        lines = len(source.readlines())
    assert 0 < dict((name, count) for name, count, _ in by_package(everything))["daa_dag"] < lines


def test_a_package_is_a_folder_at_most_two_deep() -> None:
    assert package_of("daa_node/rounds/job_runner.py") == "daa_node/rounds"
    assert package_of("daa_node/updates/compression/codec.py") == "daa_node/updates"
    assert package_of("daa_node/node.py") == "daa_node"


def test_a_sweep_says_what_its_seeds_went_through_and_how_many_of_them() -> None:
    done = CliRunner().invoke(app, ["sweep", "--seeds", "2", "--jobs", "1", "--coverage"])
    assert done.exit_code == 0
    assert "lines inside functions, seen in 2 seeds (100 % of all)" in done.output
    (line,) = [line for line in done.output.splitlines() if "daa_consensus/bft" in line]
    assert float(line.split()[1]) > 50
