"""What packaging/ ships for Grafana and Prometheus asks for what a daemon really tells.

Every expression is taken apart: names of metrics, labels, values of labels that are ours, and what
a counter or a gauge may be asked. Neither program is at hand here.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from daa_node.api.metrics import PHASES, Metrics
from daa_node.observability import events
from tests.daa_node.api.operator_desks import STATUS, facts
from tests.daa_node.cli.test_examples import COMMANDS

ROOT = Path(__file__).parent.parent
BOARD = json.loads((ROOT / "packaging/grafana/daa-node.json").read_text())
ALERTS = yaml.safe_load((ROOT / "packaging/prometheus/alerts.yaml").read_text())
RULES: list[dict[str, Any]] = [rule for group in ALERTS["groups"] for rule in group["rules"]]
OF_PROMETHEUS = {"instance", "job"}  # labels that every series gets when it is scraped
WORDS = {
    *("sum", "rate", "increase", "changes", "by", "and", "or", "unless", "offset"),
    "label_values",  # Grafana's own
    *OF_PROMETHEUS,
    "up",  # Prometheus' own: whether the last scrape was answered
}
SELECTOR = re.compile(r"([a-z_]\w*)\{([^}]*)\}")
MATCHER = re.compile(r'([a-z_]+)(?:=~|=)"([^"]*)"')


def samples() -> dict[str, tuple[str, set[str]]]:
    """(kind, labels) of each sample of /metrics, by its name."""
    limited = {**STATUS["storage"], "bytes_max": 5}
    text = Metrics().text(facts(status={**STATUS, "storage": limited})).decode()
    return {
        sample.name: (family.type, set(sample.labels))
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


SAMPLES = samples()
VALUES = {
    "name": {value for value in vars(events).values() if isinstance(value, str)},
    "phase": {*PHASES, "other"},
}


def expressions() -> Iterator[tuple[str, str]]:
    for panel in BOARD["panels"]:
        for target in panel["targets"]:
            yield panel["title"], target["expr"]
    for variable in BOARD["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["name"], variable["query"]
    for rule in RULES:
        yield rule["alert"], rule["expr"]


def faults(expression: str) -> list[str]:
    """What a daemon's metrics cannot answer of it."""
    found = []
    for opening, closing in ("()", "{}", "[]"):
        if expression.count(opening) != expression.count(closing):
            found.append(f"{opening} without {closing}")
    for metric, inner in SELECTOR.findall(expression):
        known = {*OF_PROMETHEUS, *SAMPLES.get(metric, ("", set()))[1]}
        for label, value in MATCHER.findall(inner):
            if label not in known:
                found.append(f"{metric} has no label {label}")
            if label in VALUES and not {*value.split("|")} <= VALUES[label]:
                found.append(f"{label} is never {value}")
    bare = re.sub(r'"[^"]*"|\{[^}]*\}|\[[^]]*\]|\$\w+', " ", expression)
    for name in re.findall(r"\b[a-z_]\w*", bare):
        if name not in WORDS and name not in SAMPLES and name not in VALUES | {"status": ()}:
            found.append(f"there is no {name}")
    for metric in re.findall(r"(?:rate|increase)\((\w+)", expression):
        if SAMPLES.get(metric, ("counter", ()))[0] != "counter":
            found.append(f"{metric} is no counter")
    if re.search(r"\b(and|or|unless)\b", bare):  # they compare all labels
        labels = {frozenset(SAMPLES.get(name, ("", ()))[1]) for name in _metrics(bare)}
        if len(labels) > 1:
            found.append("its sides have different labels")
    return found


def _metrics(text: str) -> list[str]:
    return re.findall(r"\bdaa_\w+", text)


@pytest.mark.parametrize(("title", "expression"), list(expressions()))
def test_each_expression_asks_for_what_a_daemon_tells(title: str, expression: str) -> None:
    assert not faults(expression), title


@pytest.mark.parametrize(
    "expression",
    [
        "daa_hight",
        'rate(daa_events_total{name="round_finalised"}[5m])',
        'daa_events_total{event="round_finalized"}',
        "rate(daa_height[5m])",
        "sum by (name) (rate(daa_events_total[5m])",
        "quantile(daa_height)",
        'daa_phase{phase="dancing"}',
        'daa_ready == 0 and daa_events_total{name="round_finalized"} > 1',
    ],
)
def test_a_planted_mistake_is_found(expression: str) -> None:
    assert faults(expression)


def test_counters_are_shown_as_rates_and_what_the_board_shows_is_most_of_what_there_is() -> None:
    asked = " ".join(target["expr"] for panel in BOARD["panels"] for target in panel["targets"])
    for name, (kind, _) in SAMPLES.items():
        if kind == "counter":
            assert not re.findall(rf"(?<!rate\()\b{name}\b", asked), name
    unseen = SAMPLES.keys() - _metrics(asked)
    assert unseen <= {
        *("daa_round", "daa_stake", "daa_stake_quorum", "daa_trainers", "daa_node_info"),
        *("daa_api_connections", "daa_job_ended"),
    }


def test_panels_lie_side_by_side_and_each_takes_the_chosen_source() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in BOARD["panels"]:
        at = panel["gridPos"]
        cells = {(at["x"] + i, at["y"] + j) for i in range(at["w"]) for j in range(at["h"])}
        assert not cells & taken, panel["title"]
        assert at["x"] + at["w"] <= 24
        taken |= cells
        uids = {target["datasource"]["uid"] for target in panel["targets"]}
        assert uids == {panel["datasource"]["uid"]} == {"${source}"}
    assert len({panel["id"] for panel in BOARD["panels"]}) == len(BOARD["panels"])


def test_each_alert_says_which_node_how_bad_it_is_and_what_to_do() -> None:
    names = [rule["alert"] for rule in RULES]
    assert len(set(names)) == len(names)
    for rule in RULES:
        assert rule["labels"]["severity"] in ("warning", "critical")
        assert "$labels.instance" in rule["annotations"]["summary"]
        assert re.fullmatch(r"\d+[mhd]", rule.get("for", "1m"))
        assert rule["annotations"]["description"].endswith(".")
        if "> 0" in rule["expr"] and "increase(" in rule["expr"]:
            assert "unless" in rule["expr"], "the first event makes the series"
        for command in re.findall(r"daa-node ([a-z]+)", rule["annotations"]["description"]):
            assert command in COMMANDS, rule["alert"]
