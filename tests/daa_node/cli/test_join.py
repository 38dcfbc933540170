"""`join` comes in with an invite, or says in one sentence why not, and keeps nothing then."""

import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import pytest
import trio

from daa_consensus.enrolment import Enroll, Enrolment
from daa_consensus.roll import Admission, Entry, Roll, RollRules
from daa_dag.ids import ChainId, NodeId, VertexId
from daa_node import genesis
from daa_node.adapters.disk_blob_store import DiskBlobStore
from daa_node.agreement.invitations import Invitations, Prospect, RollDesk
from daa_node.agreement.withdrawal import Withdrawal
from daa_node.cli import identity, join
from daa_node.cli.data_directory import DataDirectory
from daa_node.cli.join import Found, Hands, Wanted
from daa_node.cli.join_home import Home
from daa_node.cli.speed import Speed
from daa_node.cli.starting import has_retired
from daa_node.cli.trusted import read_trusted
from daa_node.errors import PeerFault, StorageFailed, Unavailable, UserError
from daa_node.network.invite_text import Invite, decode_invite, encode_invite
from daa_node.seams import Address, BlobStore, PeerId
from tests.daa_node.agreement.memory_disk import Disk
from tests.daa_node.network.neighbours import Neighbour, running, until

GOLDEN = (Path(__file__).parents[2] / "golden" / "genesis.json").read_text()
MADE = genesis.parse("genesis.json", GOLDEN)
FOUNDERS = tuple(sorted(MADE.public_keys))
SPEED = Speed("cpu", 10_000, 51_200.0, 32, 7.0)


class Outside:
    """A clock that the test sets, and chance."""

    def __init__(self) -> None:
        self.now_ns = 0

    def wall_ns(self) -> int:
        return self.now_ns

    def bytes(self, size_bytes: int) -> bytes:
        return b"t" * size_bytes


async def nobody(_name: NodeId) -> None:
    raise Unavailable("has not enrolled here")


@dataclass
class Inviter:
    """A validator as a joiner meets it, over real sockets; its roll is the test's."""

    per_voucher: int = 2
    told: list[Address] = field(default_factory=list)  # where it can be dialled, if not as usual
    made: genesis.Genesis = MADE

    def __post_init__(self) -> None:
        self.node = Neighbour(0, chain_id=self.made.chain_id)
        self.roll = Roll(RollRules(Admission.VOUCHED, self.per_voucher))
        self.outside = Outside()
        self.offered: list[Enrolment] = []
        self.text = self.made.as_text()
        keys = self.node.keys
        validators = self.made.validators()
        committee = validators.now.committee
        seat = replace(committee.validators[0], node_id=keys.node_id)
        seats = tuple(sorted((seat, *committee.validators[1:]), key=lambda v: v.node_id))
        validators.now = replace(validators.now, committee=replace(committee, validators=seats))

        async def let_in(enrolment: Enrolment, _peer_id: PeerId) -> None:
            self.offered.append(enrolment)

        desk = RollDesk(lambda: self.roll, lambda: 301, let_in, nobody)
        self.invitations = Invitations(
            keys.node_id,
            validators,
            desk,
            cast(BlobStore, Disk().work),
            (self.outside, self.outside),
            lambda: self.told or [self.node.address],
            self.node.events,
        )

        async def tell(_peer_id: PeerId, _body: bytes) -> bytes:
            return self.text.encode()

        self.node.requests.register(genesis.GENESIS_REQUEST, tell)
        self.invitations.serve(self.node.requests, self.node.directory.node_of, self.blame)

    def blame(self, peer_id: PeerId, fault: PeerFault) -> None:
        self.node.directory.blame(peer_id, fault)

    async def invite(self, uses: int = 1) -> str:
        told = await self.invitations.invite({"uses": uses, "expires_s": 3600})
        return str(told["invite"])


@asynccontextmanager
async def inviting(**given: Any) -> AsyncIterator[Inviter]:
    inviter = Inviter(**given)
    async with running(inviter.node):
        await inviter.invitations.load()
        yield inviter


@asynccontextmanager
async def inviting_through_a_relay() -> AsyncIterator[Inviter]:
    """The invite leads through another node, and nowhere else."""
    relay = Neighbour(3, chain_id=MADE.chain_id, relay=True)
    async with running(relay), inviting() as inviter:
        await inviter.node.transport.dial(relay.address)
        await until(lambda: relay.welcomed(inviter.node) and inviter.node.welcomed(relay))
        await inviter.node.transport.circuits.reserve(relay.peer_id)
        inviter.told = [Address(f"{relay.address}/p2p-circuit/p2p/{inviter.node.peer_id}")]
        yield inviter


@dataclass
class Person:
    """Who joins, on a machine that is never measured."""

    root: Path
    answers: bool = True
    free_bytes: int = 10**12
    ran: list[Path] = field(default_factory=list)
    said: str = ""
    fails: str = ""  # what a disk that fills up says
    worker_says: str = ""  # what it is told by a worker that does not train
    data_bytes: int = 0  # what a worker has made of the data
    meanwhile: Callable[[], object] = lambda: None  # while the machine is measured

    async def joins(self, text: str, trust: str | None = None) -> str:
        """What it is told is wrong; empty if nothing is."""
        hands = Hands(
            measure=lambda _made, _home: self._measured(),
            free_bytes=lambda _path: self.free_bytes,
            confirm=lambda: self.answers,
            run=lambda wanted, joined: self._run(wanted),
        )
        wanted = Wanted(self.root, self.answers, trust, "edge", with_parent=False)
        try:
            await trio.to_thread.run_sync(join.join, text, wanted, hands)
        except UserError as refused:
            return str(refused)
        return ""

    def _measured(self) -> Speed:
        self.meanwhile()
        if self.worker_says:
            raise UserError(self.worker_says)
        return replace(SPEED, data_bytes=self.data_bytes)

    def _run(self, wanted: Wanted) -> None:
        self.ran.append(wanted.directory)
        if self.fails:
            raise StorageFailed(self.fails)


@pytest.fixture
def person(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Person:
    monkeypatch.setenv("DAA_NETWORK__LISTEN", "[/ip4/127.0.0.1/tcp/0]")
    return Person(tmp_path / "eve")


async def test_one_line_makes_a_node_comes_in_and_runs(
    person: Person, capsys: pytest.CaptureFixture[str]
) -> None:
    async with inviting() as inviter:
        assert await person.joins(await inviter.invite()) == ""
    assert person.ran == [person.root]
    (enrolment,) = inviter.offered
    assert isinstance(enrolment.request.action, Enroll)
    assert (person.root / "genesis.json").read_text() == GOLDEN
    assert "bootstrap: [" in (person.root / "config.yaml").read_text()
    told = capsys.readouterr().out
    for words in (MADE.job.name, MADE.chain_id.hex(), "round 301 comes next", "parameters"):
        assert words in told
    assert "32 of a round's 32 steps fit" in told
    assert "not measured: nobody has tried to dial this machine" in told


async def test_a_validator_behind_a_relay_lets_in_as_any_other(person: Person) -> None:
    """The relay's hello comes first, and is not the inviter's."""
    async with inviting_through_a_relay() as inviter:
        text = await inviter.invite()
        assert await person.joins(text) == ""
    assert person.ran == [person.root]
    assert len(inviter.offered) == 1
    assert inviter.told[0] in (person.root / "config.yaml").read_text()


async def test_what_a_round_brings_is_told_of_all_who_are_there_now(
    person: Person, capsys: pytest.CaptureFixture[str]
) -> None:
    async with inviting(per_voucher=9) as inviter:
        names = sorted(NodeId(bytes([number]) * 32) for number in range(1, 7))
        entries = tuple(Entry(name, b"k", FOUNDERS[0], 3, 0, 2) for name in names)
        inviter.roll = replace(inviter.roll, entries=entries)
        assert await person.joins(await inviter.invite()) == ""
    assert "updates of 10 others" in capsys.readouterr().out


async def test_who_is_on_the_roll_already_is_none_of_the_others(
    person: Person, capsys: pytest.CaptureFixture[str]
) -> None:
    async with inviting(per_voucher=9) as inviter:
        text = await inviter.invite()
        assert await person.joins(text) == ""
        me = identity.open_node(person.root).keys.node_id
        entry = Entry(me, b"k", inviter.node.keys.node_id, 3, 0, 2)
        inviter.roll = replace(inviter.roll, entries=(entry,))
        assert await person.joins(text) == ""
    assert capsys.readouterr().out.count("updates of 4 others") == 2


async def test_keys_that_are_kept_nowhere_use_up_no_invite(person: Person) -> None:
    person.meanwhile = lambda: person.root.write_text("mine")
    async with inviting() as inviter:
        text = await inviter.invite()
        assert "is a file" in await person.joins(text)
        assert not inviter.offered
        assert not person.ran
        person.root.unlink()
        person.meanwhile = lambda: None
        assert await person.joins(text) == ""


async def test_where_a_daemon_runs_nobody_is_asked(person: Person) -> None:
    identity.create_node(person.root, "")
    async with inviting() as inviter:
        text = await inviter.invite()
        with DataDirectory(person.root).locked():
            assert "a daemon is already running" in await person.joins(text)
        assert not inviter.node.directory.standings()
        assert await person.joins(text) == ""


async def test_a_disk_that_fills_up_later_is_named_and_the_same_line_goes_on(
    person: Person,
) -> None:
    person.fails = "cannot write eve/work.tmp/states.ab.partial: No space left on device"
    async with inviting() as inviter:
        text = await inviter.invite()
        said = await person.joins(text)
        assert said.startswith(person.fails)
        assert said.endswith("make room if the disk is full, and give the same line again")
        person.fails = ""
        assert await person.joins(text) == ""
    assert person.ran == [person.root] * 2


async def test_the_same_line_again_takes_up_the_same_node(person: Person) -> None:
    async with inviting() as inviter:
        text = await inviter.invite()
        assert await person.joins(text) == ""
        assert await person.joins(text) == ""
    subjects = {
        e.request.action.subject for e in inviter.offered if isinstance(e.request.action, Enroll)
    }
    assert len(subjects) == 1
    assert len(person.ran) == 2


async def test_who_had_retired_and_joins_again_enrolls_again(person: Person) -> None:
    async with inviting() as inviter:
        text = await inviter.invite()
        assert await person.joins(text) == ""
        await Withdrawal(DiskBlobStore(person.root / "work")).keep()
        assert has_retired(DataDirectory(person.root), MADE.chain_id)
        assert await person.joins(text) == ""
    assert not has_retired(DataDirectory(person.root), MADE.chain_id)


async def test_who_had_retired_from_another_network_has_so_still(person: Person) -> None:
    """That one's things are put aside when the daemon starts, and come back with it."""
    identity.create_node(person.root, "")
    directory, other = DataDirectory(person.root), ChainId(b"o" * 32)
    directory.take_up(other.hex())
    await Withdrawal(DiskBlobStore(directory.work)).keep()
    async with inviting() as inviter:
        assert await person.joins(await inviter.invite()) == ""
    assert has_retired(directory, other)
    directory.take_up(MADE.chain_id.hex())
    assert has_retired(directory, other)
    assert not has_retired(directory, MADE.chain_id)


async def test_a_node_that_is_there_is_left_as_it_is_where_its_host_lacks_something(
    person: Person,
) -> None:
    identity.create_node(person.root, "trainer: {contribute: false}\n")

    def contents() -> dict[Path, bytes]:
        files = (path for path in person.root.rglob("*") if path.is_file())
        return {path: path.read_bytes() for path in files if path.name != "node.lock"}

    before = contents()
    async with inviting() as inviter:
        said = await person.joins(await inviter.invite())
    assert "trainer.contribute is false" in said
    assert f"Nothing was changed in {person.root}" in said
    assert contents() == before


async def test_who_says_no_has_kept_nothing_and_used_nothing_up(
    person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", type("Terminal", (), {"isatty": lambda _self: True})())
    person.answers = False
    async with inviting() as inviter:
        text = await inviter.invite()
        assert await person.joins(text) == ""
        assert not person.root.exists()
        assert not inviter.offered
        person.answers = True
        assert await person.joins(text) == ""


async def refused(person: Person, inviter: Inviter, text: str) -> str:
    said = await person.joins(text)
    assert not person.root.exists()
    assert not person.ran
    assert len(said) < 400
    return said


async def test_each_refusal_is_one_sentence_and_nothing_is_kept(person: Person) -> None:
    async with inviting(per_voucher=1) as inviter:
        text = await inviter.invite()
        forged = replace(decode_invite(text), token=b"?" * 16)
        assert "was made up" in await refused(person, inviter, encode_invite(forged))
        inviter.outside.now_ns = 3601 * 10**9
        assert "has expired" in await refused(person, inviter, text)
        inviter.outside.now_ns = 0
        full = inviter.roll
        entry = Entry(FOUNDERS[1], b"k", inviter.node.keys.node_id, 3, 0, 2)
        inviter.roll = replace(full, entries=(entry,))
        assert "vouches for as many trainers" in await refused(person, inviter, text)
        inviter.roll = Roll(RollRules(Admission.CLOSED))
        assert "takes no more trainers" in await refused(person, inviter, text)
        inviter.roll = full
        other = Person(person.root.parent / "first")
        assert await other.joins(text) == ""
        assert "is used up" in await refused(person, inviter, text)
        (row,) = (await inviter.invitations.listing({}))["invites"]
        await inviter.invitations.revoke({"id": row["id"]})
        assert "was taken back" in await refused(person, inviter, text)


async def test_a_network_begun_anew_is_another_one(person: Person) -> None:
    async with inviting() as inviter:
        other = replace(decode_invite(await inviter.invite()), chain_id=ChainId(b"o" * 32))
        said = await refused(person, inviter, encode_invite(other))
    assert "it is a node of another network than the invite names" in said


async def test_a_directory_of_another_network_is_left_alone(person: Person) -> None:
    async with inviting() as inviter:
        text = await inviter.invite()
        assert await person.joins(text) == ""
        before = sorted(path.name for path in person.root.iterdir())
        other = replace(decode_invite(text), chain_id=ChainId(b"o" * 32))
        said = await person.joins(encode_invite(other))
    assert "and this invite is of another chain" in said
    assert sorted(path.name for path in person.root.iterdir()) == before


async def test_a_file_is_no_place_for_a_node(person: Person) -> None:
    person.root.write_text("mine")
    async with inviting() as inviter:
        said = await person.joins(await inviter.invite())
        assert not inviter.offered
    assert said == f"{person.root} is a file: choose another --dir"
    assert person.root.read_text() == "mine"


async def test_nobody_but_the_inviter_gets_the_token(person: Person) -> None:
    async with inviting() as inviter:
        right = decode_invite(await inviter.invite())
        other = Invite(right.chain_id, FOUNDERS[1], right.token, right.addresses)
        said = await refused(person, inviter, encode_invite(other))
    assert "is another node than the one that invites you" in said


async def test_who_has_taken_the_inviters_place_since_the_look_gets_no_token_either(
    person: Person,
) -> None:
    """A machine is measured and a person thinks: by then another node may answer there."""
    async with inviting() as inviter:
        right = decode_invite(await inviter.invite())
        other = replace(right, inviter=FOUNDERS[1])
        found = Found(MADE, Prospect(301, 4, 0, known=False), right.dialled[0], None)
        home = Home.at(person.root, "edge", other)
        with pytest.raises(UserError, match="is another node than the one that invites you"):
            await trio.to_thread.run_sync(join._come_in, other, found, home)
        assert not inviter.offered


async def test_a_disk_that_is_too_small_is_said_before_anything_is_fetched(person: Person) -> None:
    person.free_bytes = 1000
    async with inviting() as inviter:
        said = await refused(person, inviter, await inviter.invite())
        assert not inviter.offered
    assert "there is no room" in said
    assert "1.0 kB are free" in said


async def test_a_disk_must_have_room_for_what_is_made_of_the_data_too(person: Person) -> None:
    person.data_bytes = person.free_bytes
    async with inviting() as inviter:
        said = await refused(person, inviter, await inviter.invite())
        assert not inviter.offered
        assert "there is no room" in said
        person.data_bytes -= 10**9
        assert await person.joins(await inviter.invite()) == ""


async def test_what_has_come_already_needs_no_room_once_more(person: Person) -> None:
    """Who was told to make room and to give the same line again has no more of it than it takes."""
    person.fails, person.data_bytes = "no space left on device", 10**9
    async with inviting() as inviter:
        text = await inviter.invite()
        assert "give the same line again" in await person.joins(text)
        cache, person.fails = person.root / "trainer" / "cache", ""
        cache.mkdir(parents=True)
        (cache / "tokens").touch()
        os.truncate(cache / "tokens", person.data_bytes)
        person.free_bytes = person.data_bytes - 1
        assert await person.joins(text) == ""
        os.truncate(cache / "tokens", 0)
        assert "there is no room" in await person.joins(text)


async def test_a_bound_that_is_too_tight_is_said_before_anything_is_fetched(
    person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DAA_STORAGE__BYTES_MAX", str(2**20))
    async with inviting() as inviter:
        said = await refused(person, inviter, await inviter.invite())
        assert not inviter.offered
    assert "storage.bytes_max is 1.0 MB here, and this network needs" in said


async def test_a_made_up_genesis_is_not_taken(person: Person) -> None:
    async with inviting() as inviter:
        inviter.text = GOLDEN.replace('"name": "test"', '"name": "tess"')
        said = await refused(person, inviter, await inviter.invite())
    assert "sent no genesis" in said


async def test_what_is_trusted_is_kept_for_each_later_start(person: Person) -> None:
    kept = person.root / "trusted"
    async with inviting() as inviter:
        text = await inviter.invite()
        assert await person.joins(text, "ab" * 32) == ""
        assert read_trusted(kept) == {MADE.chain_id: VertexId(b"\xab" * 32)}
        assert await person.joins(text) == ""  # says nothing of it
        assert read_trusted(kept) == {MADE.chain_id: VertexId(b"\xab" * 32)}
        assert await person.joins(text, "cd" * 32) == ""
        assert read_trusted(kept) == {MADE.chain_id: VertexId(b"\xcd" * 32)}


@pytest.mark.parametrize("trust", ["12", "zz" * 32])
async def test_what_to_trust_is_a_whole_id(person: Person, trust: str) -> None:
    async with inviting() as inviter:
        said = await person.joins(await inviter.invite(), trust)
    assert "64 hexadecimal digits" in said


async def test_a_port_that_is_taken_is_said_in_one_sentence(
    person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with inviting() as inviter:
        port = inviter.node.address.split("/")[4]
        monkeypatch.setenv("DAA_NETWORK__LISTEN", f"[/ip4/127.0.0.1/tcp/{port}]")
        said = await refused(person, inviter, await inviter.invite())
    assert port in said
    assert "in use" in said
