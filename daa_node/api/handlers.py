"""What an operator may ask a running node: how it stands, and to do something. Dicts in and out.

The control socket serves all of these, and the HTTP API some of them. They read, but for `drain`,
`pause` and `resume`, and `propose`, `approve` and `consent`, which speak in this node's name about
the validator set.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, Protocol

import trio

from daa_dag.ids import DIGEST_BYTES, Digest, NodeId
from daa_node.agreement.membership_requests import MembershipRequests
from daa_node.api.round_trips import told_round_trips
from daa_node.contributors.views import View
from daa_node.errors import UserError
from daa_node.identity.other_protocol import standing_of
from daa_node.identity.validators import part_of
from daa_node.network.contacts import says_it_never_trains
from daa_node.network.directory import Directory, Standing
from daa_node.network.paths import Paths
from daa_node.network.reachability import Reach
from daa_node.network.relaying import PUNCHED, RELAYED, told_reach
from daa_node.rounds.history import newest_of
from daa_node.rounds.job_runner import JobRunner
from daa_node.seams import PeerId, Transport
from daa_node.spot_checks.health import Record
from daa_node.spot_checks.usefulness import Usefulness

SCHEMA_VERSION = 1
PEER_LISTED_AFTER_S = 86_400.0  # whom we have not seen for a day is history

Handler = Callable[[Mapping[str, Any]], Awaitable[Mapping[str, Any]]]


class Process(Protocol):
    """What a node tells about the process that it runs in."""

    @property
    def pid(self) -> int: ...

    def anon_rss_bytes(self) -> int:
        """Anonymous memory: what the node itself holds, mapped files aside."""


@dataclass(frozen=True, slots=True)
class Identity:
    """What never changes while the node runs."""

    node_id: NodeId
    peer_id: PeerId
    chain_id: bytes
    process: Process


@dataclass(frozen=True, slots=True)
class Live:
    """Questions to the parts of the node that change."""

    phase: Callable[[], str]
    ended: Callable[[], str | None]
    waiting: Callable[[], str | None]
    decisions: Callable[[], list[dict[str, str]]]
    reachable: Callable[[], set[NodeId]]
    stand: Callable[[NodeId], tuple[int, int] | None]  # (view, resolved round) of a member
    checks: Callable[[NodeId], Record]  # of its work, by this node
    usefulness: Callable[[NodeId], Sequence[Usefulness]]  # of its merged updates, oldest first
    health: Callable[[NodeId], Mapping[str, Any] | None]  # None: never seen to contribute
    shunned_until: Callable[[NodeId], int | None]  # a round; None: we acknowledge its work
    views_of_us: Callable[[], Awaitable[Mapping[NodeId, View]]]  # of who answers at once
    calibration: Callable[[], Mapping[str, Any] | None]  # None: nobody is checked
    calibration_of: Callable[[NodeId], Mapping[str, Any] | None]  # our device with that member's
    bytes_sent: Callable[[], int]
    bytes_received: Callable[[], int]
    link: Callable[[], Mapping[str, Any] | None]  # its caps and budget; None: there are none
    copies: Callable[[], Mapping[str, Any]]  # of whole states, here and at others
    trainer_pid: Callable[[], int | None]
    gateway: Callable[[], Mapping[str, Any] | None]  # None: this node is none
    api: Callable[[], Mapping[str, Any] | None]  # where its HTTP API is; None: it is off
    reachability: Callable[[], Mapping[str, Any]]  # of this node, by others' dials
    is_relayed: Callable[[PeerId], bool]  # whether our connection with it leads through a relay
    is_punched: Callable[[PeerId], bool]  # or through a hole that both ends have punched
    why_relayed: Callable[[PeerId], str]  # of such a connection
    drain: Callable[[], None]
    is_paused: Callable[[], bool]  # it votes, and trains nothing
    set_paused: Callable[[bool], None]
    has_retired: Callable[[], bool]  # by its own word: it enrolls no more by itself
    paths: Paths | None = None  # None: a world where nobody can tell


class Handlers:
    """The commands of one node."""

    def __init__(
        self,
        identity: Identity,
        live: Live,
        runner: JobRunner,
        directory: Directory,
        transport: Transport,
        membership_requests: MembershipRequests,
    ) -> None:
        self._identity = identity
        self._live = live
        self._runner = runner
        self._directory = directory
        self._transport = transport
        self._membership_requests = membership_requests

    def by_command(self) -> dict[str, Handler]:
        return {
            "status": self.status,
            "peers": self.peers,
            "rounds": self.rounds,
            "drain": self.drain,
            "pause": self.pause,
            "resume": self.resume,
            "validators": self.validators,
            "propose": self.propose,
            "approve": self.approve,
            "consent": self.consent,
        }

    async def status(self, _request: Mapping[str, Any]) -> Mapping[str, Any]:
        who, live, runner = self._identity, self._live, self._runner
        vertex, reachable = runner.newest, live.reachable()
        validators = self._membership_requests.validators
        committee, trainers = validators.now.committee, validators.now.trainers
        return {
            "schema_version": SCHEMA_VERSION,
            "node_id": who.node_id.hex(),
            "peer_id": who.peer_id,
            "chain_id": who.chain_id.hex(),
            "pid": who.process.pid,
            "trainer_pid": live.trainer_pid(),
            "addresses": self._transport.addresses(),
            "reachability": live.reachability(),
            "gateway": live.gateway(),
            "api": live.api(),
            "calibration": live.calibration(),
            "part": part_of(who.node_id, validators.now),
            "phase": live.phase(),
            "paused": live.is_paused(),
            "retired": live.has_retired(),
            "never_trains": not runner.contributes,
            "protocol": standing_of(validators).as_value(),
            "round": runner.round,
            "height": vertex.height,
            "vertex_id": vertex.vertex_id.hex(),
            "model_root": vertex.model_root.hex(),
            "loss_nats": runner.history.loss_nats,
            "alarm": runner.history.loss_watch.alarm,
            "storage": runner.snapshots.quota.told(),
            "copies": live.copies(),
            "damaged": list(runner.snapshots.scrub.found),
            "repaired": list(runner.snapshots.scrub.mended),
            "validators": {
                "reachable": len(reachable & committee.stake_of.keys()),
                "total": len(committee.validators),
                "quorum": committee.quorum,
                "stake": committee.total,
            },
            "trainers": {"reachable": len(reachable & trainers), "total": len(trainers)},
            "waiting": live.waiting(),
            "decisions": live.decisions(),
            "bytes_sent": live.bytes_sent(),
            "bytes_received": live.bytes_received(),
            "link": live.link(),
            "done": live.ended() is not None,
            "ended_because": live.ended(),
            "anon_rss_bytes": who.process.anon_rss_bytes(),
        }

    async def peers(self, _request: Mapping[str, Any]) -> Mapping[str, Any]:
        views = await self._live.views_of_us()
        now_s, connected = trio.current_time(), set(self._transport.connected())
        now, listed = self._membership_requests.validators.now, []
        for standing in self._directory.standings():
            seen_ago_s = now_s - standing.seen_at_s
            if seen_ago_s > PEER_LISTED_AFTER_S:
                continue
            node_id = self._directory.node_of(standing.peer_id)
            signed = standing.signed
            stand = None if node_id is None else self._live.stand(node_id)
            view = None if node_id is None else views.get(node_id)
            checks = None if node_id is None else asdict(self._live.checks(node_id))
            listed.append(
                {
                    "node_id": None if node_id is None else node_id.hex(),
                    "peer_id": standing.peer_id,
                    "connected": standing.peer_id in connected,
                    "address": signed.record.addresses[0]
                    if signed is not None and signed.record.addresses
                    else None,
                    **self._way_to(standing, standing.peer_id in connected),
                    **self._path_of(standing.peer_id, standing.peer_id in connected),
                    "role": None if signed is None else str(signed.record.role),
                    "part": None if node_id is None else part_of(node_id, now),
                    "never_trains": says_it_never_trains(signed),
                    "score": round(self._directory.score(standing.peer_id), 1),
                    "faults": dict(standing.reputation.faults),
                    "view": None if stand is None else stand[0],
                    "height": standing.height if stand is None else stand[1],
                    "rtt_ms": None if standing.rtt_s is None else round(standing.rtt_s * 1e3, 1),
                    "speaks": None
                    if standing.speaks is None
                    else [standing.speaks.least, standing.speaks.most],
                    "clock_off_s": None
                    if standing.clock_off_s is None
                    else round(standing.clock_off_s, 2) + 0.0,  # no -0.0
                    "checks": checks,
                    "calibration": None if node_id is None else self._live.calibration_of(node_id),
                    "usefulness": [] if node_id is None else self._usefulness(node_id),
                    "health": None if node_id is None else self._live.health(node_id),
                    "shunned_until_round": None
                    if node_id is None
                    else self._live.shunned_until(node_id),
                    "sees_us": None if view is None else view.as_told(),
                    "last_seen_s": round(seen_ago_s, 1),
                }
            )
        return {"schema_version": SCHEMA_VERSION, "peers": listed}

    def _way_to(self, standing: Standing, is_here: bool) -> Mapping[str, Any]:
        """How the two nodes are connected; of one that is gone, how it may be reached."""
        peer_id, live = standing.peer_id, self._live
        relayed, punched = (
            is_here and is_so(peer_id) for is_so in (live.is_relayed, live.is_punched)
        )
        reach = None if standing.signed is None else told_reach(standing.signed.record)
        way, why = reach, None
        if is_here:
            way = PUNCHED if punched else RELAYED if relayed else str(Reach.DIRECT)
            why = live.why_relayed(peer_id) if way == RELAYED else None
        elif reach == Reach.UNREACHABLE:
            why = "it told no address: nobody could dial it, and it had no relay"
        return {"relayed": relayed, "punched": punched, "reach": reach, "way": way, "why": why}

    def _path_of(self, peer_id: PeerId, is_here: bool) -> Mapping[str, bool | None]:
        paths = self._live.paths
        if paths is None or not is_here:
            return {"dialled": None, "websocket": None}
        return {"dialled": paths.is_dialled(peer_id), "websocket": paths.is_websocket(peer_id)}

    def round_trips(self) -> Mapping[str, Any]:
        """As this node measured them."""
        voting = self._membership_requests.validators.now.committee.stake_of
        return told_round_trips(self._directory, set(self._transport.connected()), voting)

    def _usefulness(self, node_id: NodeId) -> list[dict[str, Any]]:
        return [asdict(one) for one in self._live.usefulness(node_id)]

    async def rounds(self, _request: Mapping[str, Any]) -> Mapping[str, Any]:
        # not `asdict`: it copies each name, and takes half a second where a hundred members are
        records = [
            {one.name: getattr(record, one.name) for one in fields(record)}
            for record in newest_of(self._runner.history.records)
        ]
        return {"schema_version": SCHEMA_VERSION, "rounds": records}

    async def drain(self, _request: Mapping[str, Any]) -> Mapping[str, Any]:
        self._live.drain()
        return {"schema_version": SCHEMA_VERSION, "draining": True}

    async def pause(self, _request: Mapping[str, Any]) -> Mapping[str, Any]:
        """Finish the inner steps that are under way, and train no more until `resume`."""
        self._live.set_paused(True)
        return {"schema_version": SCHEMA_VERSION, "paused": True}

    async def resume(self, _request: Mapping[str, Any]) -> Mapping[str, Any]:
        self._live.set_paused(False)
        return {"schema_version": SCHEMA_VERSION, "paused": False}

    async def validators(self, _request: Mapping[str, Any]) -> Mapping[str, Any]:
        return {"schema_version": SCHEMA_VERSION, **self._membership_requests.listing()}

    async def propose(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        operation = await self._membership_requests.propose(request)
        return {"schema_version": SCHEMA_VERSION, "id": operation.request.id.hex()}

    async def approve(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        operation = await self._membership_requests.approve(Digest(_digest(request.get("id"))))
        return {"schema_version": SCHEMA_VERSION, "id": operation.request.id.hex()}

    async def consent(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        return await self._membership_requests.consent(NodeId(_digest(request.get("seat"))))


def _digest(text: object) -> bytes:
    try:
        value = bytes.fromhex(str(text))
    except ValueError:
        value = b""
    if len(value) != DIGEST_BYTES:
        raise UserError(f"{str(text)[:80]!r} is not a name of {2 * DIGEST_BYTES} hex digits")
    return value
