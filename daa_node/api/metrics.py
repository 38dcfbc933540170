"""What a monitoring program scrapes: this node's standing in Prometheus' text format.

Base units, and labels whose values are ours: names of events, phases, HTTP statuses. Peers give
none, so that nobody outside makes one series more. Everything is read from the node when it is
asked for; nothing is counted twice. docs/operator-api.md has the list.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.metrics_core import Metric

from daa_node.wire.protocols import PROTOCOL_VERSION

CONTENT_TYPE = CONTENT_TYPE_LATEST
# `JobRunner.phase`; whatever else it may say is told as `other`.
PHASES = ("starting", "restoring", "catching_up", "training", "serving", "publishing", "done")


@dataclass(frozen=True, slots=True)
class Facts:
    """What one scrape tells of."""

    status: Mapping[str, Any]  # as the command `status` answers
    is_ready: bool
    peers_connected: int
    round_s: float | None  # the newest finished round's
    connections: int  # of the API itself
    events: Mapping[str, int]  # name -> since the start
    answers: Mapping[int, int]  # HTTP status -> since the start


Read = Callable[[Facts], float | int | None]  # None: nothing to tell, and no sample


def _status(*path: str) -> Read:
    def read(facts: Facts) -> float | None:
        value: Any = facts.status
        for key in path:
            value = value[key]
        return None if value is None else float(value)

    return read


GAUGES: tuple[tuple[str, str, Read], ...] = (
    ("daa_ready", "1 while this node takes part, as /readyz says", lambda f: f.is_ready),
    ("daa_height", "Newest certified vertex on disk", _status("height")),
    ("daa_round", "Newest round that was resolved", _status("round")),
    ("daa_loss_nats", "Held-out loss of the newest vertex, nats a token", _status("loss_nats")),
    (
        "daa_loss_alarm",
        "1 while the held-out loss has jumped",
        lambda f: f.status["alarm"] is not None,
    ),
    ("daa_last_round_seconds", "Duration of the newest round", lambda f: f.round_s),
    ("daa_job_ended", "1 once the job is done", lambda f: bool(f.status["done"])),
    ("daa_paused", "1 while its operator has it train nothing", _status("paused")),
    (
        "daa_trainer_up",
        "1 while the worker process lives",
        lambda f: f.status["trainer_pid"] is not None,
    ),
    (
        "daa_validators_reachable",
        "Validators that this node reaches, itself included",
        _status("validators", "reachable"),
    ),
    ("daa_validators", "Validators of this epoch", _status("validators", "total")),
    ("daa_stake", "Stake of all validators", _status("validators", "stake")),
    ("daa_stake_quorum", "Stake that agreement takes", _status("validators", "quorum")),
    (
        "daa_trainers_reachable",
        "Trainers without a vote that this node reaches",
        _status("trainers", "reachable"),
    ),
    ("daa_trainers", "Trainers without a vote", _status("trainers", "total")),
    ("daa_peers_connected", "Peers with a connection", lambda f: f.peers_connected),
    (
        "daa_memory_anonymous_bytes",
        "Memory that the daemon itself holds, mapped files aside",
        _status("anon_rss_bytes"),
    ),
    ("daa_storage_chain_bytes", "What chain/ takes on disk", _status("storage", "chain_bytes")),
    ("daa_storage_work_bytes", "What work/ takes on disk", _status("storage", "work_bytes")),
    ("daa_storage_limit_bytes", "storage.bytes_max, if it is set", _status("storage", "bytes_max")),
    (
        "daa_records_damaged",
        "Records that the disk has spoilt and nobody has mended",
        lambda f: len(f.status["damaged"]),
    ),
    ("daa_api_connections", "Open connections of the HTTP API", lambda f: f.connections),
)
COUNTERS: tuple[tuple[str, str, Read], ...] = (
    ("daa_sent_bytes", "Payload sent to peers since the start", _status("bytes_sent")),
    (
        "daa_received_bytes",
        "Payload received from them since the start",
        _status("bytes_received"),
    ),
)


class Metrics:
    """One node's, in a registry of its own: none of the library's or of libp2p's are in it."""

    def __init__(self) -> None:
        self._facts: Facts | None = None
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)

    def text(self, facts: Facts) -> bytes:
        """All of them, with their meaning."""
        self._facts = facts
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        """For the registry."""
        facts = self._facts
        if facts is None:
            return
        for name, meaning, read in GAUGES:
            value = read(facts)
            yield GaugeMetricFamily(name, meaning, None if value is None else float(value))
        for name, meaning, read in COUNTERS:
            value = read(facts)
            yield CounterMetricFamily(name, meaning, None if value is None else float(value))
        yield _build(facts)
        yield _phase(facts)
        events = CounterMetricFamily("daa_events", "Events of the log, by name", labels=["name"])
        for event, count in sorted(facts.events.items()):
            events.add_metric([event], count)
        yield events
        answers = CounterMetricFamily("daa_api_answers", "Answers of the API", labels=["status"])
        for status, count in sorted(facts.answers.items()):
            answers.add_metric([str(status)], count)
        yield answers


def _build(facts: Facts) -> Metric:
    labels = {
        "protocol_version": str(PROTOCOL_VERSION),
        "chain_id": facts.status["chain_id"],
        "node_id": facts.status["node_id"],
    }
    told = GaugeMetricFamily("daa_node_info", "Always 1: which node this is", labels=list(labels))
    told.add_metric(list(labels.values()), 1.0)
    return told


def _phase(facts: Facts) -> Metric:
    told = GaugeMetricFamily("daa_phase", "1 for what the node is at", labels=["phase"])
    now = facts.status["phase"] if facts.status["phase"] in PHASES else "other"
    for phase in (*PHASES, "other"):
        told.add_metric([phase], float(phase == now))
    return told
