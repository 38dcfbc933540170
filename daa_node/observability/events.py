"""What happened on this node, one JSON object a line, under names that scripts can rely on.

An event is `{"ts": unix seconds, "name": ..., <fields>}`. The log keeps a bounded tail in memory,
feeds subscribers (`daa-node logs -f`), and hands every line to a writer; it opens no file itself.
Losing an event is never a reason to stop: a slow subscriber misses some and is told how many.
The fields of each stand beside its name, or above it.
"""

import json
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, NewType

import trio

EventName = NewType("EventName", str)

# The daemon
NODE_STARTED = EventName("node_started")  # node_id, chain_id
NODE_STOPPED = EventName("node_stopped")  # reason
CONFIG_RELOADED = EventName("config_reloaded")  # changed, needs_restart, or error
COMMAND_FAILED = EventName("command_failed")  # command, error
STORAGE_FAILED = EventName("storage_failed")  # detail
DESCRIPTORS_SHORT = EventName("descriptors_short")  # detail: waited for, every ten seconds
LIBRARY_FAILED = EventName("library_failed")  # where, detail, count: told every ten minutes
CLOCK_SKEWED = EventName("clock_skewed")  # peer, detail
GATEWAY_OPENED = EventName("gateway_opened")  # url, listens
GATEWAY_FAILED = EventName("gateway_failed")  # error, retry_s
API_OPENED = EventName("api_opened")  # url, listens: the operator's own
API_FAILED = EventName("api_failed")  # error, retry_s
HISTORY_FAILED = EventName("history_failed")  # detail: of D/history; tried again, said once an hour
TRACES_FAILED = EventName("traces_failed")  # error: some are lost; said once
HISTORY_SET_ASIDE = EventName("history_set_aside")  # why: and where it lies
# token, visitor, asked, body, status, outcome: what may change this node, see the audit log
API_COMMANDED = EventName("api_commanded")
PAGE_MISSING = EventName("page_missing")  # detail: a page is not served, and what to do
# where, error, count: a mistake of ours, told every ten minutes
VISIT_FAILED = EventName("visit_failed")
# Volunteers
VOLUNTEER_CAME = EventName("volunteer_came")  # volunteer, page: its version
VOLUNTEER_LEFT = EventName("volunteer_left")  # volunteer
VOLUNTEER_ERRED = EventName("volunteer_erred")  # volunteer: a result that is not the right one
VOLUNTEER_REFUSED = EventName("volunteer_refused")  # reason, detail, count: every ten minutes each
# kind, about, sound, ours, distance: `ours` if we computed it, too
VOLUNTEERS_FOUND = EventName("volunteers_found")
# Peers
# node_id, peer_id, role, network: the address that it comes from, or the relay
PEER_JOINED = EventName("peer_joined")
PEER_LEFT = EventName("peer_left")  # node_id, peer_id, reason
PEER_REFUSED = EventName("peer_refused")  # peer_id, reason, detail, by: us or peer
PEER_FAULT = EventName("peer_fault")  # peer_id, reason, detail, score
PEER_BANNED = EventName("peer_banned")  # peer_id, score, for_s
REQUEST_FAILED = EventName("request_failed")  # peer_id, request, error: a mistake of ours
DIAL_FAILED = EventName("dial_failed")  # address, error, failures: in a row
NAME_UNKNOWN = EventName("name_unknown")  # host, why: told once, until its name resolves
# reach, before, why, seen_at: whether others can dial this node
REACHABILITY_CHANGED = EventName("reachability_changed")
RELAY_RESERVED = EventName("relay_reserved")  # relay, seconds: others reach us through it
RELAY_LOST = EventName("relay_lost")  # relay, why
# node_id, peer_id: both ends have dialled each other through their routers, past the relay
HOLE_PUNCHED = EventName("hole_punched")
# host, port, seconds: our home's router lets others in there; a claim until others get through
PORT_OPENED = EventName("port_opened")
PORT_REFUSED = EventName("port_refused")  # why: the router was asked to, and it came to nothing
HOLE_FAILED = EventName("hole_failed")  # node_id, peer_id, why, failures: it stays relayed
INVITE_USED = EventName("invite_used")  # invite, node_id: it came with one of ours
# node_id, why: it came with an invite, and could not be passed on; it comes again
INVITE_HELD_UP = EventName("invite_held_up")
INVITES_LOST = EventName("invites_lost")  # why: the book cannot be read, all of them are void
QUORUM_WAIT = EventName("quorum_wait")  # reachable, total, quorum, waiting
# Rounds
ROUND_STARTED = EventName("round_started")  # round, base, steps
UPDATE_SEALED = EventName("update_sealed")  # round, steps, tokens, loss_nats, size_bytes, seal_s
BULK_OPENED = EventName("bulk_opened")  # peer, way: dialled, dialled_by_peer or over_stream
# budget, spent_bytes, budget_bytes: open, saving or spent, and what this day has and has had
DATA_BUDGET = EventName("data_budget")
UPDATE_SPREAD = EventName("update_spread")  # round, size_bytes, sent_bytes: of ours, by the end
OFFER_ACKED = EventName("offer_acked")  # round, author
OFFER_ELIGIBLE = EventName("offer_eligible")  # round, author: a quorum acknowledged it
OFFER_REFUSED = EventName("offer_refused")  # round, author, reason
EPOCH_BEGAN = EventName("epoch_began")  # epoch, validators, stake, changes, dropped, expelled
# version, round, spoken: from that round on it is used, if so many say still that they speak it
PROTOCOL_ANNOUNCED = EventName("protocol_announced")
PROTOCOL_USED = EventName("protocol_used")  # version, round: from that round on
SET_DECIDED = EventName("set_decided")  # round, contributors, left_out, ours: whether we are in it
SET_EXECUTED = EventName("set_executed")  # round, wall_s
EXEC_CERTIFIED = EventName("exec_certified")  # round, vertex_id, signers
# round, height, vertex_id, loss_nats, contributors, wall_s, bytes_sent
ROUND_FINALIZED = EventName("round_finalized")
LOSS_JUMPED = EventName("loss_jumped")  # height, loss_nats, why: a certified step spoilt the model
ABORT_DUE = EventName("abort_due")  # round, reason
# round, author, segment, finding, parts, distance, why: part of another's work, done again
SEGMENT_CHECKED = EventName("segment_checked")
# device, steps, median, high, repeats: how far our device comes out from canonical kernels
CALIBRATED = EventName("calibrated")
CALIBRATION_FAILED = EventName("calibration_failed")  # why: the genesis' tolerance holds
SEGMENT_OPENED = EventName("segment_opened")  # round, states: our own, for a checker
DOUBT_ENDED = EventName("doubt_ended")  # round, author, outcome, why: of a check of ours
VERDICT_GIVEN = EventName("verdict_given")  # round, author, accuser, convicted: ours
VERDICT_FAILED = EventName("verdict_failed")  # round, why: tried again
# round, author, rounds, why: it shows no work that can be checked, and we acknowledge none of it
AUTHOR_SHUNNED = EventName("author_shunned")
# round, author, root, origin, origin_root, distance, voided: one contribution is another's copy
COPY_FOUND = EventName("copy_found")
# round, author, norm, cosine, distance, agreement: of a merged contribution, to the others
UPDATE_MEASURED = EventName("update_measured")
# node_id, level, before, score, weakest, why: what this node thinks of a contributor
STANDING_CHANGED = EventName("standing_changed")
ROUND_ABORTED = EventName("round_aborted")  # round
JOB_ENDED = EventName("job_ended")  # reason
# Agreement
VIEW_GIVEN_UP = EventName("view_given_up")  # view, reason
STATEMENT_SENT = EventName("statement_sent")  # kind, view, round: signed, durable, and sent to all
VIEW_ENTERED = EventName("view_entered")  # epoch, view, why
BLOCK_FINALIZED = EventName("block_finalized")  # view, height, block_id, payload
VOTE_REFUSED = EventName("vote_refused")  # kind, view, why
EVIDENCE_FOUND = EventName("evidence_found")  # offender, offence
QUARANTINED = EventName("quarantined")  # why
KEY_ELSEWHERE = EventName("key_elsewhere")  # why: a Rejoin in our name that is not ours
REJOINED = EventName("rejoined")  # view, round: votes may be given again soon
GAP_CROSSED = EventName("gap_crossed")  # from_height, height: nobody kept the deltas between
# height, bytes, bytes_due: proofs are followed up to there, and so much of a whole state is here
STATE_COMING = EventName("state_coming")
CAUGHT_UP = EventName("caught_up")  # height, round
SCOUTED = EventName("scouted")  # height, sources: anybody's pages, as no known member is heard
PAST_FORKED = EventName("past_forked")  # round, sources: two quorums of it; nobody is believed
# Blobs, checkpoints, the worker
BLOB_FETCHED = EventName("blob_fetched")  # root, size_bytes, wall_s
CHECKPOINT_PUBLISHED = EventName("checkpoint_published")  # height, vertex_id, wall_s
FIRST_WEIGHTS_AWAITED = EventName("first_weights_awaited")  # root, why
SNAPSHOT_STORED = EventName("snapshot_stored")  # height, wall_s
DATA_PRUNED = EventName("data_pruned")  # count: of files that retention let go of
DATA_PACKED = EventName("data_packed")  # files, merged: moved into a pack; packs into one
# bytes, bytes_max: nine tenths of storage.bytes_max; and: more than that, and nothing may go
STORAGE_NEAR = EventName("storage_near")
STORAGE_OVER = EventName("storage_over")  # bytes, bytes_max, why
STORAGE_LET_GO = EventName("storage_let_go")  # bytes, states: gained, and files of old states
# height, holders, wall_s: a whole state that so many others held is here, too
SNAPSHOT_COPIED = EventName("snapshot_copied")
COPIES_LACK = EventName("copies_lack")  # height, holders, why: it was ours to fetch; said once
HISTORY_THINNED = EventName("history_thinned")  # epochs_light: so many have one certificate each
RECORD_DAMAGED = EventName("record_damaged")  # detail: found when old rounds were read again
RECORD_REPAIRED = EventName("record_repaired")  # detail: a good one of a member is in its place
RECORD_LOST = EventName("record_lost")  # detail: no member within reach has a good one; said once
# blocks, damaged, repaired: one pass over all that is kept, what stays so, and what was mended
CHAIN_SCRUBBED = EventName("chain_scrubbed")
CHECKPOINT_RESTORED = EventName("checkpoint_restored")  # height
TRAINER_STARTED = EventName("trainer_started")  # pid, device, inner_state
TRAINER_LOST = EventName("trainer_lost")  # why
TRAINER_REFUSED = EventName("trainer_refused")  # round, why: an order that was not carried out
TRAINER_UNSAVED = EventName("trainer_unsaved")  # why
# The loop
DECISION = EventName("decision")  # decision, reason
LESSON = EventName("lesson")  # round, expected, happened
POLICY_ADAPTED = EventName("policy_adapted")  # round, reason

TAIL_EVENTS_MAX = 2_000  # some 30 rounds of one node: enough to see what led to a fault
# clients of the control socket, the minute's line, the service manager, the history, traces
SUBSCRIBERS_MAX = 14
SUBSCRIBER_EVENTS_MAX = 512  # a terminal that stalls for a few seconds loses nothing
TEXT_CHARS_MAX = 600  # a peer's words end up in fields; they must not fill the disk

Event = dict[str, Any]


class EventLog:
    """Takes events from everywhere in the node; all calls come from the trio thread."""

    def __init__(
        self, wall_ns: Callable[[], int], write: Callable[[Event], None] | None = None
    ) -> None:
        """`write` gets each event as JSON has it: texts, numbers, lists and objects."""
        self._wall_ns = wall_ns
        self._write = write
        self._tail: deque[Event] = deque(maxlen=TAIL_EVENTS_MAX)
        self._subscribers: dict[trio.MemorySendChannel[Event], int] = {}  # -> events missed
        self.emitted = 0  # since the start: the number of the newest event
        self._waiting = trio.lowlevel.ParkingLot()
        self.counts: Counter[str] = Counter()  # of each name since the start; names are ours

    def emit(self, name: EventName, /, **fields: object) -> None:
        """Record one event. Bytes become hex; long text is cut; what JSON lacks becomes text."""
        assert not {"ts", "name"} & fields.keys(), f"{name} overwrites ts or name"
        event: Event = {"ts": round(self._wall_ns() / 1e9, 6), "name": str(name)}
        for key, value in fields.items():
            event[key] = _plain(value)
        self._tail.append(event)
        self.emitted += 1
        self._waiting.unpark_all()
        self.counts[event["name"]] += 1
        if self._write is not None:
            self._write(event)
        for subscriber in list(self._subscribers):
            self._offer(subscriber, event)

    def tail(self, count: int = TAIL_EVENTS_MAX) -> list[Event]:
        """The newest `count` events, oldest first."""
        return list(self._tail)[-count:] if count > 0 else []

    async def news(self, number: int) -> None:
        """Return when there is an event with a higher number."""
        while self.emitted <= number:
            await self._waiting.park()

    def since(self, number: int, count_max: int) -> tuple[int, list[Event]]:
        """Events after that number, the oldest first; before them, how many the tail has lost."""
        behind = max(0, self.emitted - number)
        held = min(behind, len(self._tail))
        first = len(self._tail) - held
        return behind - held, [self._tail[first + k] for k in range(min(held, count_max))]

    @asynccontextmanager
    async def subscribe(self) -> AsyncIterator[trio.MemoryReceiveChannel[Event]]:
        """Every event from now on. Raises RuntimeError when SUBSCRIBERS_MAX are listening."""
        if len(self._subscribers) >= SUBSCRIBERS_MAX:
            raise RuntimeError(f"{SUBSCRIBERS_MAX} subscribers are listening already")
        send, receive = trio.open_memory_channel[Event](SUBSCRIBER_EVENTS_MAX)
        self._subscribers[send] = 0
        try:
            async with receive:
                yield receive
        finally:
            self._subscribers.pop(send, None)

    def _offer(self, subscriber: trio.MemorySendChannel[Event], event: Event) -> None:
        missed = self._subscribers[subscriber]
        try:
            if missed:
                gap: Event = {"ts": event["ts"], "name": "events_missed", "count": missed}
                subscriber.send_nowait(gap)
                self._subscribers[subscriber] = 0
            subscriber.send_nowait(event)
        except trio.WouldBlock:
            self._subscribers[subscriber] += 1
        except trio.BrokenResourceError:
            self._subscribers.pop(subscriber, None)


def as_line(event: Event) -> str:
    """One line of JSON, without the newline."""
    return json.dumps(event, separators=(",", ":"), ensure_ascii=True)


def _plain(value: object) -> Any:
    match value:
        case None | bool() | int():
            return value
        case float():
            # JSON has no infinities and no NaN; a diverged loss must still be readable.
            return value if value == value and abs(value) != float("inf") else str(value)
        case str():
            text = str(value)
            return text if len(text) <= TEXT_CHARS_MAX else text[:TEXT_CHARS_MAX] + "..."
        case bytes() | bytearray():
            return bytes(value[: TEXT_CHARS_MAX // 2]).hex()
        case dict():
            return {str(key): _plain(item) for key, item in value.items()}
        case list() | tuple() | set() | frozenset():
            return [_plain(item) for item in value]
        case _:
            return _plain(str(value))
