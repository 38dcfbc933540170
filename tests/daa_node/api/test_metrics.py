"""What is scraped is read by the reader of Prometheus' own library, bounded and documented."""

import re
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

from daa_node.api.metrics import PHASES, Metrics
from tests.daa_node.api.operator_desks import STATUS, facts

DOC = Path(__file__).parents[3] / "docs" / "operator-api.md"
SERIES_MAX = 60  # of the facts below; events and statuses add one for each that came up


def families(**more: Any) -> dict[str, Metric]:
    text = Metrics().text(facts(**more)).decode()
    return {family.name: family for family in text_string_to_metric_families(text)}


def value(name: str, **more: Any) -> float:
    (sample,) = families(**more)[name].samples
    return float(sample.value)


def test_the_libraries_own_reader_finds_each_value() -> None:
    assert value("daa_height") == 4
    assert value("daa_loss_nats") == pytest.approx(2.25)
    assert value("daa_last_round_seconds") == pytest.approx(1.5)
    assert value("daa_received_bytes") == 456
    assert value("daa_ready", is_ready=False) == 0
    paused = {**STATUS, "paused": True}
    assert (value("daa_paused"), value("daa_paused", status=paused)) == (0, 1)
    sent = families()["daa_sent_bytes"]
    assert (sent.type, sent.samples[0].name) == ("counter", "daa_sent_bytes_total")
    (event,) = families()["daa_events"].samples
    assert (event.labels, event.value) == ({"name": "round_finalized"}, 4)


def test_what_is_not_known_has_no_value() -> None:
    told = families(status={**STATUS, "loss_nats": None}, round_s=None)
    for name in ("daa_loss_nats", "daa_last_round_seconds", "daa_storage_limit_bytes"):
        assert told[name].samples == []


def test_a_phase_is_one_of_ours_whatever_it_says() -> None:
    for phase, label in [("done", "done"), ("dancing", "other")]:
        samples = families(status={**STATUS, "phase": phase})["daa_phase"].samples
        assert {s.labels["phase"] for s in samples} == {*PHASES, "other"}
        assert [s.labels["phase"] for s in samples if s.value] == [label]


def test_each_is_documented_and_nothing_else_is() -> None:
    rows = re.findall(r"^\| `(daa_\w+)", DOC.read_text(encoding="utf-8"), re.MULTILINE)
    samples = {
        f"{family.name}_total" if family.type == "counter" else family.name
        for family in families().values()
    }
    assert sorted(rows) == sorted(samples)
    assert all(family.documentation for family in families().values())


def test_series_are_few_and_in_base_units() -> None:
    told = families()
    assert sum(len(family.samples) for family in told.values()) < SERIES_MAX
    assert not [name for name in told if re.search(r"_(ms|us|kb|mb|gb|percent)(_|$)", name)]


def test_nothing_of_another_registry_is_in_it() -> None:
    assert all(name.startswith("daa_") for name in families())
