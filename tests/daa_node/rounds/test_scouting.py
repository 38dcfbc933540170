"""Who hears nobody that it knows asks just anybody, and believes what proves itself."""

import math
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio
import trio.testing

from daa_consensus.bft.messages import AbortPayload, Block, ResultPayload
from daa_consensus.committee import Committee, Domain, Validator
from daa_consensus.votes import Certificate, Kind, Statement
from daa_dag import canonical
from daa_dag.ids import NodeId
from daa_node.agreement.wan_bft import WanBft
from daa_node.checkpoints.chain import ChainStore
from daa_node.checkpoints.page_server import page_after
from daa_node.checkpoints.pages import REQUEST, page_value
from daa_node.checkpoints.publish import Page
from daa_node.identity import envelope
from daa_node.identity.keys import NodeKeys
from daa_node.identity.record import RECORD_LIFETIME_NS, NodeRecord, Role, SignedRecord, sign_record
from daa_node.identity.validators import Validators
from daa_node.network.blob_exchange import BlobFetcher
from daa_node.network.contacts import Contacts
from daa_node.network.directory import Directory
from daa_node.network.requests import Requests
from daa_node.observability.events import EventLog
from daa_node.rounds.job_runner import JobRunner
from daa_node.rounds.peers import Peers, Sizes
from daa_node.rounds.scouting import ASKED_MAX, LAG_S, Rota, Scout, is_silent, silence_s
from daa_node.seams import BlobStore, ByteStream, PeerId, Transport
from tests.daa_node.agreement.fixed_members import fixed_validators
from tests.daa_node.agreement.message_world import open_world, until
from tests.daa_node.rounds.bare_chain import BareChain
from tests.daa_node.rounds.test_catch_up import bad_signature
from tests.daa_node.rounds.test_pages_over_epochs import CHAIN, GENESIS, round_of

ROUNDS_GROWN = 20
DELTA_S = 0.25
QUIET_S = silence_s(DELTA_S)
US = NodeKeys.from_seed(b"who was away")
KEYS = sorted((NodeKeys.from_seed(b"m%d" % n) for n in range(4)), key=lambda keys: keys.node_id)
COMMITTEE = Committee(tuple(Validator(keys.node_id, 1) for keys in KEYS))
Answer = Callable[[bytes], Awaitable[bytes]]


def validators() -> Validators:
    """The history as it begins."""
    public_keys = {keys.node_id: keys.ml_dsa_public_key for keys in KEYS}
    return fixed_validators(CHAIN, COMMITTEE, public_keys, epoch_rounds=2)


def final(block: Block) -> Certificate:
    """Signed by three of the four, in earnest."""
    domain = Domain(CHAIN, block.epoch, COMMITTEE.root)
    statement = Statement(domain, Kind.FINALIZE, block.view, block.height, block.id)
    words = [envelope.sign(statement, keys) for keys in KEYS[:3]]  # sorted by their names
    return Certificate(statement, tuple((word.signer, word.signature) for word in words))


@pytest.fixture(scope="module")
def grown() -> ChainStore:
    """What those that we knew, all of them gone by now, have made since."""
    archive, tip = BareChain(GENESIS, epoch_rounds=2), GENESIS
    for number in range(1, ROUNDS_GROWN + 1):
        blocks = [replace(b, epoch=(number - 1) // 2) for b in round_of(tip, number)]
        blocks[1] = replace(blocks[1], parent_id=blocks[0].id)
        archive.publish(blocks, final(blocks[-1]))
        tip = blocks[-1]
    return cast(ChainStore, archive)


@dataclass(slots=True)
class Strangers:
    """A Transport to peers that answer as they like; counts who asks whom at once."""

    nursery: trio.Nursery
    serves: dict[PeerId, Callable[[ByteStream], Awaitable[None]]] = field(default_factory=dict)
    asked: list[tuple[float, PeerId]] = field(default_factory=list)
    gone: set[PeerId] = field(default_factory=set)
    peer_id: PeerId = US.peer_id

    def connected(self) -> list[PeerId]:
        return [peer_id for peer_id in self.serves if peer_id not in self.gone]

    async def open_stream(self, peer_id: PeerId, protocol: str) -> ByteStream:
        self.asked.append((trio.current_time(), peer_id))
        ours, theirs = trio.testing.memory_stream_pair()
        for stream in (ours, theirs):
            stream.peer_id = peer_id  # type: ignore[attr-defined]
        self.nursery.start_soon(self._served, peer_id, cast(ByteStream, theirs))
        return cast(ByteStream, ours)

    async def _served(self, peer_id: PeerId, stream: ByteStream) -> None:
        try:
            await self.serves[peer_id](stream)
        except (trio.BrokenResourceError, trio.TooSlowError):
            return  # whoever asked has stopped listening


def record_of(keys: NodeKeys) -> SignedRecord:
    record = NodeRecord(
        keys.ml_dsa_public_key, keys.ml_kem_public_key, keys.peer_id, (), Role.CLOUD, (), 1, 0,
        RECORD_LIFETIME_NS,
    )  # fmt: skip
    return sign_record(record, keys)


class Stage:
    """A node that was away, whose members are silent, among strangers."""

    def __init__(self, nursery: trio.Nursery, us: NodeKeys = US) -> None:
        self.events = EventLog(lambda: 0)
        self.validators = validators()
        members = {k.node_id: k.peer_id for k in KEYS}
        self.directory = Directory(trio.current_time, members, self.events)
        self.line = Strangers(nursery)
        transport = cast(Transport, self.line)
        self.contacts = Contacts(us.node_id, self.validators, self.directory, transport)
        self.tip = GENESIS  # of what our job runner has published
        self.told: list[Certificate] = []
        self.heard: set[NodeId] = set()  # write to us until they fall silent
        self.silent_s = math.inf
        # A member is in a round; who looks on never is.
        newest = SimpleNamespace(height=0)
        self.runner = SimpleNamespace(in_round=us in KEYS, newest=newest, round=0)
        agreement = SimpleNamespace(
            me=us.node_id,
            delta_s=DELTA_S,
            validators=self.validators,
            heard_since=lambda since_s: self.heard if since_s < self.silent_s else set(),
            caught_up=self._caught_up,
        )
        peers = Peers(
            cast(BlobFetcher, None),
            Requests(transport, self.directory, self.events),
            self.contacts,
            cast(BlobStore, None),
            Sizes(self.validators.limits, 0, 0.0, ()),
        )
        self.scout = Scout(
            cast(JobRunner, self.runner),
            cast(WanBft, agreement),
            cast(ChainStore, SimpleNamespace(resume_point=self._resume_point)),
            peers,
            self.contacts,
            self.events,
        )

    async def _resume_point(self) -> Block:
        await trio.lowlevel.checkpoint()
        return self.tip

    async def _caught_up(self, certificate: Certificate, blocks: tuple[Block, ...]) -> None:
        """The job runner follows what was found, at once."""
        self.told.append(certificate)
        for page in self.scout.found(self.tip).values():
            kinds = (ResultPayload, AbortPayload)
            closings = [block for block in page.blocks if isinstance(block.payload, kinds)]
            self.tip = closings[-1]
            self.validators.follow(page.blocks)
            self.runner.newest.height = self.runner.round = self.tip.height

    def stranger(self, name: str, answer: Answer) -> NodeKeys:
        """One more, connected, whose record we have; it answers whoever asks for a page so."""
        keys = NodeKeys.from_seed(name.encode())
        requests = Requests(cast(Transport, None), self.directory, self.events)
        requests.register(REQUEST, lambda _peer_id, body: answer(body))
        self.directory.learn(record_of(keys))
        self.line.serves[keys.peer_id] = requests.serve
        return keys

    def faults(self, keys: NodeKeys) -> Counter[str]:
        standing = self.directory.standing(keys.peer_id)
        assert standing is not None
        return standing.reputation.faults

    def events_named(self, name: str) -> list[dict[str, Any]]:
        return [event for event in self.events.tail() if event["name"] == name]


async def on_stage(play: Callable[[Stage], Awaitable[None]], us: NodeKeys = US) -> None:
    async with trio.open_nursery() as nursery:
        await play(Stage(nursery, us))
        nursery.cancel_scope.cancel()


def answers(chain: ChainStore, change: Callable[[Page], Page] = lambda page: page) -> Answer:
    """As an honest node does, but for the change."""

    async def answer(body: bytes) -> bytes:
        page = await page_after(chain, cast(Any, body))
        return canonical.encode(page_value(None if page is None else change(page)))

    return answer


async def garbage(_body: bytes) -> bytes:
    return b"\xc1 no page"


async def nothing(_body: bytes) -> bytes:
    return canonical.encode(page_value(None))


async def stalls(_body: bytes) -> bytes:
    await trio.sleep_forever()
    raise AssertionError


def of_nobody(page: Page) -> Page:
    return replace(page, certificate=bad_signature(page.certificate))


def backwards(page: Page) -> Page:
    return replace(page, blocks=page.blocks[::-1])


def of_too_few(page: Page) -> Page:
    signatures = page.certificate.signatures[:2]
    return replace(page, certificate=replace(page.certificate, signatures=signatures))


async def test_liars_are_scored_and_keep_nobody_from_the_one_that_has_the_chain(
    grown: ChainStore, autojump_clock: trio.testing.MockClock
) -> None:
    async def play(stage: Stage) -> None:
        liars = {
            "malformed": stage.stranger("garbage", garbage),
            "bad-signature": stage.stranger("forger", answers(grown, of_nobody)),
            "no-quorum": stage.stranger("minority", answers(grown, of_too_few)),
            "bad_page": stage.stranger("out of order", answers(grown, backwards)),
        }
        idle = [stage.stranger(f"idle {n}", nothing) for n in range(2)]
        stage.stranger("staller", stalls)
        honest = stage.stranger("honest", answers(grown))
        with trio.move_on_after(20 * QUIET_S):
            await stage.scout.run()
        assert stage.tip.height == ROUNDS_GROWN
        for reason, liar in liars.items():
            assert set(stage.faults(liar)) == {reason}
            assert stage.directory.score(liar.peer_id) < 0
        assert not any(stage.faults(keys) for keys in (honest, *idle))
        sources = {source for e in stage.events_named("scouted") for source in e["sources"]}
        assert sources == {honest.node_id.hex()}
        assert stage.told

    await on_stage(play)


async def test_who_surely_is_behind_and_stands_does_not_wait_for_silence(
    grown: ChainStore, autojump_clock: trio.testing.MockClock
) -> None:
    async def play(stage: Stage) -> None:
        stage.heard = {keys.node_id for keys in KEYS}
        stage.stranger("honest", answers(grown))
        stage.directory.saw(KEYS[1].peer_id, ROUNDS_GROWN)
        with trio.move_on_after(3 * QUIET_S):
            await stage.scout.run()
        assert stage.tip == GENESIS  # one of them may lie
        stage.directory.saw(KEYS[2].peer_id, ROUNDS_GROWN)
        stage.silent_s = trio.current_time()
        with trio.move_on_after(2 * LAG_S):
            await stage.scout.run()
        assert stage.tip.height == ROUNDS_GROWN

    await on_stage(play, us=KEYS[0])


async def test_an_aborted_round_hides_no_head(
    grown: ChainStore, autojump_clock: trio.testing.MockClock
) -> None:
    async def play(stage: Stage) -> None:
        stage.stranger("honest", answers(grown))
        stage.tip = replace(GENESIS, height=1)  # aborted: nothing was trained
        stage.runner.round = 1
        for keys in KEYS[1:3]:
            stage.directory.saw(keys.peer_id, 1)
        with trio.move_on_after(2 * LAG_S):
            await stage.scout.run()
        assert stage.line.asked

    await on_stage(play, us=KEYS[0])


async def test_who_follows_already_asks_nobody_before_it_has_been_silent_for_long(
    grown: ChainStore, autojump_clock: trio.testing.MockClock
) -> None:
    async def play(stage: Stage) -> None:
        stage.stranger("honest", answers(grown))
        stage.runner.in_round = False
        for keys in KEYS[1:]:
            stage.directory.saw(keys.peer_id, ROUNDS_GROWN)
        with trio.move_on_after(0.9 * QUIET_S):
            await stage.scout.run()
        assert not stage.line.asked

    for us in (KEYS[0], US):
        await on_stage(play, us)


async def test_nobody_is_asked_about_a_round_that_was_not_left_long_ago(
    grown: ChainStore, autojump_clock: trio.testing.MockClock
) -> None:
    """The next one opens each time, or a head was heard a moment ago."""

    async def play(stage: Stage) -> None:
        stage.stranger("honest", answers(grown))

        async def conclude() -> None:
            while True:
                await trio.sleep(0.9 * LAG_S)
                stage.runner.round += 1

        async with trio.open_nursery() as nursery:
            nursery.start_soon(stage.scout.run)
            await trio.sleep(1.9 * LAG_S)
            for keys in KEYS[1:]:
                stage.directory.saw(keys.peer_id, ROUNDS_GROWN)
            nursery.start_soon(conclude)
            await trio.sleep(0.5 * LAG_S)
            assert not stage.line.asked
            await trio.sleep(0.5 * QUIET_S)
            assert not stage.line.asked
            nursery.cancel_scope.cancel()

    await on_stage(play, us=KEYS[0])


async def test_a_runner_that_follows_others_is_in_no_round(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with open_world() as world:
        *others, late = world.members
        for member in others:
            await world.start(member)
        await until(lambda: others[0].height >= 2, 60)
        assert others[0].now.runner.in_round
        await world.start(late)
        runner = late.now.runner
        await until(lambda: runner.phase == "catching_up", 60)
        assert not runner.in_round
        await until(lambda: runner.in_round, 60)
        assert late.height >= 2


async def test_at_most_a_few_are_asked_at_once_and_none_before_it_has_been_silent_for_long(
    grown: ChainStore, autojump_clock: trio.testing.MockClock
) -> None:
    async def play(stage: Stage) -> None:
        names = {stage.stranger(f"idle {n}", nothing).peer_id for n in range(3 * ASKED_MAX)}
        began_s = trio.current_time()
        with trio.move_on_after(3.5 * QUIET_S):
            await stage.scout.run()
        at_s = Counter(round((asked_s - began_s) / QUIET_S, 3) for asked_s, _ in stage.line.asked)
        assert at_s == {1.0: ASKED_MAX, 2.0: ASKED_MAX, 3.0: ASKED_MAX}
        assert {peer_id for _, peer_id in stage.line.asked} == names

    await on_stage(play)


async def test_a_member_asks_nobody_while_a_quorum_writes_to_it(
    grown: ChainStore, autojump_clock: trio.testing.MockClock
) -> None:
    async def play(stage: Stage) -> None:
        stage.stranger("honest", answers(grown))
        stage.heard = {keys.node_id for keys in KEYS[1:3]}  # three of four with ourselves
        for keys in KEYS[1:]:  # we are slow, or links are
            stage.directory.saw(keys.peer_id, ROUNDS_GROWN)
        with trio.move_on_after(5 * QUIET_S):
            await stage.scout.run()
        assert not stage.line.asked
        stage.heard.pop()
        with trio.move_on_after(5 * QUIET_S):
            await stage.scout.run()
        assert stage.tip is not GENESIS

    await on_stage(play, us=KEYS[0])


async def test_who_looks_on_asks_when_its_tip_stands_however_many_members_are_connected(
    grown: ChainStore, autojump_clock: trio.testing.MockClock
) -> None:
    async def play(stage: Stage) -> None:
        for keys in KEYS:  # their heads are believed by a committee that we do not know yet
            stage.line.serves[keys.peer_id] = hangs_up
        stage.stranger("honest", answers(grown))
        with trio.move_on_after(3 * QUIET_S):
            await stage.scout.run()
        assert stage.tip.height == ROUNDS_GROWN

    await on_stage(play)


async def test_who_looks_on_asks_nobody_while_its_tip_moves(
    grown: ChainStore, autojump_clock: trio.testing.MockClock
) -> None:
    async def play(stage: Stage) -> None:
        stage.stranger("honest", answers(grown))

        async def follow() -> None:
            for number in range(1, 6):
                await trio.sleep(0.9 * QUIET_S)
                stage.tip = replace(GENESIS, view=number)

        stage.line.nursery.start_soon(follow)
        with trio.move_on_after(5 * 0.9 * QUIET_S):
            await stage.scout.run()
        assert not stage.line.asked

    await on_stage(play)


async def hangs_up(stream: ByteStream) -> None:
    await stream.aclose()


def another_past() -> Page:
    """The first round, aborted: whoever has the keys of three that have left can sign it."""
    opened, closing = round_of(GENESIS, 1)
    abort = replace(closing, payload=AbortPayload(1))
    return Page((opened, abort), final(abort), ())


async def test_two_pasts_with_the_keys_of_one_quorum_are_both_left_alone(
    grown: ChainStore, autojump_clock: trio.testing.MockClock
) -> None:
    async def play(stage: Stage) -> None:
        forged = another_past()

        async def other(_body: bytes) -> bytes:
            return canonical.encode(page_value(forged))

        stage.stranger("honest", answers(grown))
        stage.stranger("holder of leaked keys", other)
        await stage.scout.run()  # ends
        assert stage.tip is GENESIS
        assert not stage.told
        (told,) = stage.events_named("past_forked")
        assert (told["round"], len(told["sources"])) == (1, 2)

    await on_stage(play)


async def test_the_banned_are_not_asked(
    grown: ChainStore, autojump_clock: trio.testing.MockClock
) -> None:
    async def play(stage: Stage) -> None:
        liar = stage.stranger("garbage", garbage)
        with trio.move_on_after(30 * QUIET_S):
            await stage.scout.run()
        assert 10 <= stage.faults(liar)["malformed"] < 30  # ten earn a ban

    await on_stage(play)


def test_who_votes_is_silent_without_messages_and_who_looks_on_without_news() -> None:
    known, (first, *others) = validators(), [k.node_id for k in KEYS]
    quorum, fewer = set(others[:2]), set(others[:1])  # beside ourselves
    assert not is_silent(first, known, heard=quorum, has_moved=False)
    assert is_silent(first, known, heard=fewer, has_moved=True)
    assert not is_silent(US.node_id, known, heard=set(), has_moved=True)
    assert is_silent(US.node_id, known, heard=set(others), has_moved=False)


@pytest.mark.parametrize("count", [1, 4, 5, 64])
def test_everybody_has_a_turn_whoever_comes_anew_all_the_time(count: int) -> None:
    rota, asked, honest = Rota(), set[NodeId](), {NodeId(b"z%d" % k) for k in range(count)}
    for turn in range(2 * math.ceil(count / ASKED_MAX)):
        sybils = {NodeId(b"%d" % (turn + k)) for k in range(3)}  # under other names each time
        asked |= set(rota.next(sybils | honest))
    assert asked >= honest


def test_who_had_nothing_for_long_is_asked_again_beside_ever_new_names() -> None:
    """Of no use is everybody while nothing is new; that must not make room for whoever comes."""
    rota, honest = Rota(), NodeId(b"honest")
    for _ in range(10):
        rota.next({honest})
    asked: list[NodeId] = []
    for turn in range(10):
        asked += rota.next({honest, *(NodeId(b"%d %d" % (turn, k)) for k in range(8))})
    assert asked.count(honest) >= 3


def test_who_helped_is_asked_again_first() -> None:
    rota, present = Rota(), [NodeId(b"%d" % k) for k in range(9)]
    first = rota.next(present)
    rota.helped(first[2])
    assert first[2] in rota.next(present)
