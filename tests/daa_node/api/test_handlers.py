"""Whatever an operator's program sends, no word leaves that others would call malformed."""

import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from daa_consensus.bft.limits import Limits
from daa_consensus.committee import STAKE_MAX, VALIDATORS_MAX, Committee, Validator
from daa_consensus.membership import Membership
from daa_consensus.operations import Operation, decode_operation
from daa_consensus.votes import Signed, Statement
from daa_dag import canonical
from daa_dag.ids import ChainId, Digest, NodeId
from daa_node.agreement.doorstep import Doorstep
from daa_node.agreement.membership_requests import MembershipRequests
from daa_node.agreement.messages import Asked, Message, Position, decode_message, encode_message
from daa_node.agreement.signer import Signer
from daa_node.agreement.wan_bft import WanBft
from daa_node.api.answers import Peers
from daa_node.api.handlers import Handlers, Identity, Live
from daa_node.api.replies import as_json, told
from daa_node.checkpoints.quota import Level, Standing
from daa_node.contributors.views import View
from daa_node.errors import NodeError, PeerFault, UserError
from daa_node.identity.keys import NodeKeys
from daa_node.identity.record import Role
from daa_node.identity.validators import Validators
from daa_node.network.directory import Directory
from daa_node.network.discovery import OwnRecord
from daa_node.network.requests import Requests
from daa_node.observability.events import EventLog, as_line
from daa_node.rounds.history import ROUNDS_LISTED_MAX, LossWatch, RoundRecord
from daa_node.rounds.job_runner import JobRunner
from daa_node.seams import Address, PeerId, Transport
from daa_node.spot_checks.health import Record
from daa_node.wire.protocols import OURS
from tests.daa_node.agreement.memory_disk import Disk
from tests.daa_node.api.strict_json import strict_json
from tests.daa_node.network.neighbours import WallClock

CHAIN = ChainId(b"c" * 32)
KEYS = sorted((NodeKeys.from_seed(bytes([i])) for i in range(4)), key=lambda k: k.node_id)
NEWCOMER = NodeKeys.from_seed(b"newcomer")
LIMITS = Limits(4, 4)


class Chance:
    def bytes(self, size_bytes: int) -> bytes:
        return bytes(size_bytes)


class Listening(Signer):
    """A real signer; `said` is every word that it gave its signature for."""

    said: list[Signed]

    async def sign(self, statement: Statement, abort_round: int | None = None) -> Signed:
        signed = await super().sign(statement, abort_round)
        self.said.append(signed)
        return signed


ROUND = RoundRecord(7, 9, "ab" * 32, 2.5, ("cd" * 32,), ("ef" * 32,), (), 100, 1.5)


def first_alone() -> list[PeerId]:
    return [KEYS[0].peer_id]


async def nobody_says() -> Mapping[NodeId, View]:
    return {}


class Daemon:
    """One node's handlers over its real desk and signer; what it tells is judged as by others."""

    def __init__(self, keys: NodeKeys) -> None:
        self.operations: dict[Digest, Operation] = {}
        self.validators = Validators(
            CHAIN,
            10,
            Membership(Committee(tuple(Validator(k.node_id, 1) for k in KEYS))),
            {k.node_id: k.ml_dsa_public_key for k in KEYS},
            {k.node_id: k.peer_id for k in KEYS},
            [k.node_id for k in KEYS],
        )
        self.signer = Listening(keys, CHAIN, Disk(), Chance())
        self.signer.said = []
        self.told = 0
        self.is_paused = self.has_retired = False

        async def tell(_peer_id: PeerId, _word: str, body: bytes, _bytes_max: int) -> bytes:
            self.judge(decode_operation(body))
            return b""

        self.membership_requests = MembershipRequests(
            keys,
            self.validators,
            self.signer,
            cast(
                WanBft,
                SimpleNamespace(ask=self._ask, facts=SimpleNamespace(operations=self.operations)),
            ),
            Doorstep(cast(Requests, SimpleNamespace(ask=tell)), first_alone, first_alone),
        )
        self.here: list[PeerId] = []
        self.relayed: set[PeerId] = set()
        self.punched: set[PeerId] = set()
        transport = SimpleNamespace(connected=lambda: self.here, addresses=list)
        process = SimpleNamespace(pid=7, anon_rss_bytes=lambda: 0)
        vertex = SimpleNamespace(height=0, vertex_id=b"v" * 32, model_root=b"m" * 32)
        history = SimpleNamespace(loss_nats=None, loss_watch=LossWatch(), records=[ROUND])
        self.history = history
        self.scrub = SimpleNamespace(found=(), mended=())
        snapshots = SimpleNamespace(scrub=self.scrub, quota=Standing(5, 2, 10, Level.NEAR))
        runner = SimpleNamespace(
            newest=vertex, round=0, history=history, snapshots=snapshots, contributes=True
        )
        self.directory = Directory(trio.current_time, {}, EventLog(lambda: 0))
        identity = Identity(keys.node_id, keys.peer_id, CHAIN, process)
        self.commands = Handlers(
            identity,
            self._live(),
            cast(JobRunner, runner),
            self.directory,
            cast(Transport, transport),
            self.membership_requests,
        ).by_command()

    def _live(self) -> Live:
        nothing: Any = lambda: None  # noqa: E731
        return Live(
            phase=str,
            ended=nothing,
            waiting=nothing,
            decisions=list,
            reachable=set,
            stand=lambda _: None,
            checks=lambda _: Record(),
            usefulness=lambda _: (),
            health=lambda _: None,
            shunned_until=lambda _: None,
            views_of_us=nobody_says,
            calibration=nothing,
            calibration_of=lambda _: {},
            bytes_sent=int,
            bytes_received=int,
            link=nothing,
            copies=lambda: {"wanted": 3, "states": []},
            trainer_pid=nothing,
            gateway=nothing,
            api=nothing,
            reachability=dict,
            is_relayed=self.relayed.__contains__,
            is_punched=self.punched.__contains__,
            why_relayed=lambda _: "no hole: no stream came about",
            drain=nothing,
            is_paused=lambda: self.is_paused,
            set_paused=self.set_paused,
            has_retired=lambda: self.has_retired,
        )

    def set_paused(self, paused: bool) -> None:
        self.is_paused = paused

    def _ask(self, operation: Operation) -> bool:
        message = Message(Position(0, 1, 0, 0, 0), Asked(operation))
        read = decode_message(encode_message(message), LIMITS)
        assert isinstance(read.body, Asked)
        self.judge(read.body.operation)
        self.operations[operation.request.id] = operation
        return True

    def judge(self, operation: Operation) -> None:
        self.told += 1
        self.validators.check_operation(operation)

    def check_said(self) -> None:
        """Each signed word is one that others take for a request."""
        for signed in self.signer.said:
            chain, epoch, _, _, _, _, action = canonical.decode(
                signed.statement.sign_bytes(), 10_000
            )
            both = action[1:3] if action[0] == "rotate" else action[1:2]
            pairs = [[name, b"signature"] for name in sorted(both)]
            encoded = canonical.encode(["membership", epoch, action, pairs])
            assert chain == CHAIN
            assert decode_operation(encoded).request.statement(CHAIN) == signed.statement


async def test_the_rounds_of_a_crowd_that_signs_and_copies_fit_an_answer() -> None:
    names = tuple(number.to_bytes(32, "big").hex() for number in range(VALIDATORS_MAX))
    crowd = [
        RoundRecord(height, height, names[0], 2.5, names, names, names[:42], 10**12, 1234.567890)
        for height in range(ROUNDS_LISTED_MAX)
    ]
    daemon = Daemon(KEYS[0])
    daemon.history.records[:] = crowd
    answer = await daemon.commands["rounds"]({})
    assert answer["rounds"][-1]["height"] == ROUNDS_LISTED_MAX - 1
    assert len(answer["rounds"]) > ROUNDS_LISTED_MAX // 2
    assert told(answer).status == 200
    hundred = [replace(one, certified_by=names[:100], contributors=names[:100]) for one in crowd]
    daemon.history.records[:] = [replace(one, voided=()) for one in hundred]
    assert len((await daemon.commands["rounds"]({}))["rounds"]) == ROUNDS_LISTED_MAX


async def test_a_peer_is_told_as_the_api_describes_it() -> None:
    daemon = Daemon(KEYS[0])
    daemon.directory.saw(KEYS[1].peer_id, 3, 0.020, 0.5, OURS)
    answer = strict_json(as_json(await daemon.commands["peers"]({})))
    (peer,) = Peers.model_validate(answer, strict=True).peers
    assert (peer.rtt_ms, peer.speaks, peer.dialled) == (20.0, [OURS.least, OURS.most], None)


async def test_each_peer_has_the_way_to_it_in_one_word_and_why_it_is_no_shorter_one() -> None:
    daemon = Daemon(KEYS[0])
    keys = KEYS[1]
    addresses: list[Address] = []
    own = OwnRecord(keys, lambda: addresses, Role.CLOUD, (), WallClock())

    async def way() -> tuple[str | None, str | None, str | None]:
        daemon.directory.learn(own.current())
        (peer,) = (await daemon.commands["peers"]({}))["peers"]
        return peer["way"], peer["reach"], peer["why"]

    daemon.directory.saw(keys.peer_id, 3)
    assert await way() == (
        *("unreachable", "unreachable"),
        "it told no address: nobody could dial it, and it had no relay",
    )
    daemon.here.append(keys.peer_id)  # it dialled us
    assert await way() == ("direct", "unreachable", None)
    addresses.append(Address("/ip4/1.2.3.4/tcp/1/p2p/r/p2p-circuit/p2p/x"))
    daemon.relayed.add(keys.peer_id)
    assert await way() == ("relayed", "relayed", "no hole: no stream came about")
    daemon.punched.add(keys.peer_id)
    assert await way() == ("punched", "relayed", None)
    daemon.here.clear()
    assert await way() == ("relayed", "relayed", None)


async def run(daemon: Daemon, command: str, request: Mapping[str, Any]) -> Mapping[str, Any]:
    await daemon.signer.load()
    answer = await daemon.commands[command](request)
    json.loads(as_line({"ok": True, **answer}))
    return answer


WRONG_STAKES = [True, False, 0, -1, STAKE_MAX + 1, 2**63, 2**64, 10**80, 1.5, "2", None, [2]]


@pytest.mark.parametrize("stake", WRONG_STAKES, ids=repr)
@pytest.mark.parametrize("action", ["stake", "join"])
async def test_a_stake_that_is_none_is_refused_before_it_is_signed(action: str, stake: Any) -> None:
    daemon = Daemon(NEWCOMER if action == "join" else KEYS[0])
    with pytest.raises(UserError):
        await run(daemon, "propose", {"action": action, "stake": stake})
    assert (daemon.signer.said, daemon.told) == ([], 0)


@pytest.mark.parametrize("epoch", [True, -1, 2**63, 2**64, 1e308, float("inf"), "8", None])
async def test_a_consent_of_no_epoch_is_refused_before_it_is_signed(epoch: Any) -> None:
    consent = dict(await run(Daemon(NEWCOMER), "consent", {"seat": KEYS[0].node_id.hex()}))
    daemon, rotate = Daemon(KEYS[0]), {"action": "rotate", "consent": consent}
    with pytest.raises(UserError):
        await run(daemon, "propose", {**rotate, "consent": {**consent, "expires_epoch": epoch}})
    assert (daemon.signer.said, daemon.told) == ([], 0)
    await run(daemon, "propose", rotate)
    assert daemon.told == 1


async def test_nobody_consents_to_take_its_own_seat() -> None:
    daemon = Daemon(KEYS[0])
    with pytest.raises(UserError):
        await run(daemon, "consent", {"seat": KEYS[0].node_id.hex()})
    assert daemon.signer.said == []


NUMBERS = (
    st.integers(-(2**70), 2**70)
    | st.sampled_from([0, 1, 2, STAKE_MAX, STAKE_MAX + 1, 2**63 - 1, 2**63, 2**64])
    | st.floats(allow_nan=True, allow_infinity=True)
    | st.booleans()
)
NAMES = st.sampled_from([k.node_id.hex() for k in KEYS] + [NEWCOMER.node_id.hex(), "00" * 32])
LEAVES = st.none() | NUMBERS | NAMES | st.text(max_size=80)
VALUES: st.SearchStrategy[Any] = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3), max_leaves=5
)
CONSENT = {"successor", "keys", "expires_epoch", "signature"}


@st.composite
def requests(draw: st.DrawFn) -> tuple[str, dict[str, Any]]:
    commands = ["status", "peers", "rounds", "validators", "propose", "approve", "consent"]
    wanted = draw(st.dictionaries(st.sampled_from(["action", "stake", "id", "seat"]), VALUES))
    if draw(st.booleans()):
        wanted["action"] = draw(st.sampled_from(["join", "leave", "stake", "rotate"]))
    if draw(st.booleans()):
        changes = draw(st.dictionaries(st.sampled_from(sorted(CONSENT)), VALUES, max_size=2))
        gone = draw(st.sets(st.sampled_from(sorted(CONSENT)), max_size=1))
        kept = {name: value for name, value in GIVEN.items() if name not in gone}
        wanted["consent"] = draw(VALUES | st.just({**kept, **changes}))
    return draw(st.sampled_from(commands)), wanted


def _consent() -> dict[str, Any]:
    return dict(trio.run(run, Daemon(NEWCOMER), "consent", {"seat": KEYS[0].node_id.hex()}))


GIVEN: dict[str, Any] = _consent()


@settings(max_examples=300, deadline=None)
@given(requests(), st.sampled_from([KEYS[0], NEWCOMER]))
def test_no_request_of_an_operator_makes_a_node_say_what_others_refuse(
    request: tuple[str, dict[str, Any]], keys: NodeKeys
) -> None:
    daemon = Daemon(keys)

    async def ask() -> None:
        try:
            await run(daemon, *request)
        except PeerFault:
            raise
        except NodeError as refused:
            as_line({"ok": False, "error": str(refused)}).encode()

    trio.run(ask)
    daemon.check_said()


async def test_status_names_what_the_disk_has_lost() -> None:
    daemon = Daemon(KEYS[0])
    assert (await run(daemon, "status", {}))["damaged"] == []
    daemon.scrub.found, daemon.scrub.mended = ("chunks/ab is damaged",), ("blocks/cd is missing",)
    answer = await run(daemon, "status", {})
    assert answer["storage"] == {
        "chain_bytes": 5,
        "work_bytes": 2,
        "bytes_max": 10,
        "level": "near",
    }
    assert answer["copies"] == {"wanted": 3, "states": []}
    assert answer["damaged"] == ["chunks/ab is damaged"]
    assert answer["repaired"] == ["blocks/cd is missing"]


async def test_status_says_whether_it_has_retired() -> None:
    daemon = Daemon(KEYS[0])
    assert (await run(daemon, "status", {}))["retired"] is False
    daemon.has_retired = True
    assert (await run(daemon, "status", {}))["retired"] is True


async def test_status_says_whether_the_operator_has_paused_it() -> None:
    daemon = Daemon(KEYS[0])
    assert (await run(daemon, "status", {}))["never_trains"] is False
    assert (await run(daemon, "pause", {}))["paused"] is True
    assert (await run(daemon, "status", {}))["paused"] is True
    assert (await run(daemon, "resume", {}))["paused"] is False
    assert (await run(daemon, "status", {}))["paused"] is False


async def test_a_round_is_told_with_all_that_is_recorded_of_it() -> None:
    answer = await run(Daemon(KEYS[0]), "rounds", {})
    assert json.loads(told(answer).body)["rounds"] == json.loads(json.dumps([asdict(ROUND)]))
