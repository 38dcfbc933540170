"""What the nodes of a run tell, read from their event logs while they write them."""

import json
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from daa_node.network.addresses import RELAYED_BY
from daa_node.observability.events import (
    AUTHOR_SHUNNED,
    COPY_FOUND,
    DOUBT_ENDED,
    EVIDENCE_FOUND,
    OFFER_ELIGIBLE,
    SEGMENT_CHECKED,
    UPDATE_SEALED,
    VERDICT_GIVEN,
)
from simnet.checks.daemon_events import retold
from simnet.world.determinism import FINAL, ROUND, UP, VIEW, VOTE, Trace
from simnet.world.links import NS

Event = dict[str, Any]
# What goes into the trace of all that a log holds.
OF_WORK = (
    UPDATE_SEALED,
    OFFER_ELIGIBLE,
    SEGMENT_CHECKED,
    DOUBT_ENDED,
    VERDICT_GIVEN,
    EVIDENCE_FOUND,
    AUTHOR_SHUNNED,
    COPY_FOUND,
)
TRACED = (UP, VIEW, VOTE, FINAL, ROUND, *OF_WORK)


@dataclass(slots=True)
class EventLog:
    """One node's, over its restarts."""

    path: Path
    offset: int = 0
    ended: bool = False  # it says that the job is done
    height: int = 0
    reach: str = "unknown"  # as the daemon found last
    relays: set[str] = field(default_factory=set)  # peer ids that relay for it now
    met: set[str] = field(default_factory=set)  # node ids it was ever connected with
    relayed: set[str] = field(default_factory=set)  # and those by relay
    punched: set[str] = field(default_factory=set)  # node ids it was ever connected with so
    contributed: int = 0  # rounds whose sets have an update of it
    finals_ns: list[int] = field(default_factory=list)  # when blocks became final, in the run

    def read(self) -> list[Event]:
        """What was written since the last time; a line that is not whole waits."""
        try:
            with self.path.open("rb") as file:
                file.seek(self.offset)
                payload = file.read()
        except FileNotFoundError:
            return []
        whole = payload[: payload.rfind(b"\n") + 1]
        self.offset += len(whole)
        return [json.loads(line) for line in whole.splitlines()]


class EventLogs:
    """All of them, and what follows from them."""

    def __init__(self, directories: list[Path], trace: Trace, start_wall_ns: int) -> None:
        self.of_nodes = [EventLog(directory / "events.jsonl") for directory in directories]
        self.evidence: dict[str, str] = {}  # by the offender's node id in hex: what for
        self.losses: dict[int, float] = {}  # by height
        self.contributors: dict[int, int] = {}  # by height
        self.vertices: dict[int, set[str]] = {}  # by height
        self.names: Counter[str] = Counter()
        self._trace = trace
        self._start_wall_ns = start_wall_ns

    def read(self) -> None:
        """Take in what is new, in the order of the nodes' clocks, which are one."""
        news = [
            (int(event.get("ts", 0) * NS) - self._start_wall_ns, node, event)
            for node, log in enumerate(self.of_nodes)
            for event in log.read()
        ]
        for now_ns, node, event in sorted(news, key=lambda item: item[:2]):
            self._take(max(0, now_ns), node, event)

    def _take(self, now_ns: int, node: int, event: Event) -> None:
        log, name = self.of_nodes[node], event["name"]
        self.names[name] += 1
        what, fields = retold(event)
        if what in TRACED:
            self._trace.note(now_ns, what, node=node, **fields)
        match name:
            case "block_finalized":
                log.finals_ns.append(now_ns)
            case "round_finalized":
                height, loss_nats = event["height"], event.get("loss_nats")
                log.height = max(log.height, height)
                self.vertices.setdefault(height, set()).add(event["vertex_id"])
                self.contributors[height] = event.get("contributors", 0)
                if isinstance(loss_nats, float):
                    self.losses.setdefault(height, round(loss_nats, 4))
            case "evidence_found":
                self.evidence[event["offender"]] = f"{event['offence']}, says node {node}"
            case "set_decided" if event["ours"]:
                log.contributed += 1
            case "job_ended":
                log.ended = True
            case _:
                _note_reach(log, event)


def _note_reach(log: EventLog, event: Event) -> None:
    match event["name"]:
        case "reachability_changed":
            log.reach = event["reach"]
        case "relay_reserved":
            log.relays.add(event["relay"])
        case "relay_lost":
            log.relays.discard(event["relay"])
        case "hole_punched" if event["node_id"] is not None:
            log.punched.add(event["node_id"])
        case "peer_joined":
            log.met.add(event["node_id"])
            if event["network"].startswith(RELAYED_BY):
                log.relayed.add(event["node_id"])
