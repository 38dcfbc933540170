"""`daa-node join`: from an invite's text to a daemon that trains, and nothing kept before the yes.

    read the text -> visit its validator: genesis, would we be welcome, can we be dialled
      -> what does this host lack? -> measure it -> show all that, ask -> make the node -> come in
         -> run

What a host lacks, somebody's code or a file, is put into the node's directory and its settings. So
the node is made then, and told to nobody: the same line goes on with it.

The token goes to the node that the invite names alone, as that node's own signature proves. What is
told of the network beside its genesis is that node's word; all that is trained on is proved later.
"""

import shlex
import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import trio

from daa_consensus.enrolment import Enroll, Enrolment, TrainerRequest
from daa_dag.ids import DIGEST_BYTES, ChainId, VertexId
from daa_node.adapters.disk_blob_store import DiskBlobStore
from daa_node.agreement import invitations
from daa_node.agreement.invitations import Prospect, decode_answer, encode_request, enrolment_until
from daa_node.agreement.invite_book import Refusal
from daa_node.agreement.withdrawal import Withdrawal
from daa_node.checkpoints.beside import temporary_room
from daa_node.cli import identity, joining, report
from daa_node.cli.compose import Joined, run_daemon, training_job
from daa_node.cli.contribution import tell
from daa_node.cli.data_directory import DataDirectory
from daa_node.cli.host_needs import lacking
from daa_node.cli.join_costs import Costs, Others, check_quota, check_room, costs_of
from daa_node.cli.join_home import Home
from daa_node.cli.speed import Speed, measured
from daa_node.cli.starting import has_retired
from daa_node.errors import StorageFailed, UserError
from daa_node.genesis import Genesis
from daa_node.identity.envelope import sign
from daa_node.identity.validators import MemberKeys
from daa_node.network.invite_text import Invite, decode_invite
from daa_node.seams import Address
from daa_node.training.torch_there import need_torch

INVITE_BYTES_MAX = 8192  # from standard input
DIALLED_BACK_S = 12.0
Measure = Callable[[Genesis, Home], Speed]

# What a refusal means to whoever joins, and what to do.
REFUSED: Mapping[Refusal, str] = {
    Refusal.UNKNOWN: "the validator does not know this invite: it was made up, or is older than "
    "what the validator remembers. Ask for another one",
    Refusal.EXPIRED: "this invite has expired. Ask for another one",
    Refusal.USED_UP: "this invite is used up: as many nodes as it was made for have come with it. "
    "Ask for another one. If you have come with it yourself, give the same --dir again",
    Refusal.REVOKED: "this invite was taken back by whoever made it. Ask for another one",
    Refusal.CLOSED: "this network takes no more trainers (its genesis has trainers.admission "
    "closed)",
    Refusal.OVER_QUOTA: "the validator that invites you vouches for as many trainers as it may "
    "already (trainers.per_voucher). Ask another validator for an invite, or wait until a trainer "
    "of this one has gone",
    Refusal.FULL: "this network has as many trainers as it takes (trainers.max). Try again later",
    Refusal.NO_MEMBER: "the node that invites you is no validator any more, and its word lets in "
    "nobody. Ask one that is",
    Refusal.MEMBER: "this node is a validator of that network already. To run it: `daa-node run`",
    Refusal.GOING: "this node is about to leave that network's trainers. Try again in some rounds",
    Refusal.GONE: "this node was a trainer of that network by this invite, and is none any more. "
    "Ask for another one",
    Refusal.NOT_NOW: "the validator cannot pass it on at present. Try again in a minute; the same "
    "invite still holds",
}


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the options of `join` say."""

    directory: Path
    yes: bool
    trust: str | None
    role: str
    with_parent: bool


@dataclass(frozen=True, slots=True)
class Found:
    """What a visit has brought."""

    made: Genesis
    prospect: Prospect
    address: Address  # where the inviter answered
    is_dialled: bool | None  # back; None: it was not tried


def join(text: str, wanted: Wanted, hands: "Hands | None" = None) -> None:
    """Returns when the daemon has ended.

    Raises UserError, with nothing kept before the yes, but where this host lacks what it is to get.
    """
    need_torch("join, which has this machine train,")
    hands = hands or Hands()
    if text.strip() == "-":
        try:
            text = sys.stdin.read(INVITE_BYTES_MAX)
        except UnicodeDecodeError:
            raise UserError("standard input is no text: pipe the invite's text into it") from None
    invite, anchor = decode_invite(text), _anchor_of(wanted.trust)
    if not wanted.yes and not sys.stdin.isatty():
        raise UserError(
            "join asks before it begins, and there is no terminal to ask at: give --yes if you "
            "know what you join"
        )
    home = Home.at(wanted.directory, wanted.role, invite)
    found = trio.run(_look, invite, home)
    made = found.made
    prospect = found.prospect
    others = Others(prospect.validators, prospect.trainers - prospect.known)
    costs = costs_of(made, home.config.storage.retention, prospect.next_round, others)
    check_quota(home.config.storage.bytes_max, costs)
    free_bytes = hands.free_bytes(wanted.directory)
    costs = replace(costs, disk_bytes=costs.disk_bytes - home.held_bytes)
    check_room(wanted.directory, costs.disk_bytes, free_bytes)
    speed = _tried(made, home, anchor, hands.measure)
    costs = replace(costs, disk_bytes=max(0, costs.disk_bytes + speed.data_bytes))
    check_room(wanted.directory, costs.disk_bytes, free_bytes)
    for line in told(invite, found, costs, free_bytes, speed):
        report.put(line)
    if not wanted.yes and not hands.confirm():
        report.put("nothing was kept" if home.settings is not None else "nothing was changed")
        return
    home.keep(made, anchor)
    trio.run(_want_again, home.directory, made.chain_id)
    _come_in(invite, found, home)
    report.note(f"in. Next time: daa-node run --dir {shlex.quote(str(wanted.directory))}")
    try:
        hands.run(wanted, Joined(tell))
    except StorageFailed as failure:
        raise UserError(
            f"{failure}. What has come stays, and so does your place: make room if the disk is "
            "full, and give the same line again",
            exit_code=1,
        ) from None


def _tried(made: Genesis, home: Home, anchor: VertexId | None, measure: Measure) -> Speed:
    """Raises UserError for what this host lacks.

    A node that is not there yet is made then, for that to be mended; one that is there is left as
    it is, as its owner has not said yes.
    """
    code = 2
    lacks = lacking(made, home.directory, home.config)
    if not lacks:
        try:
            return measure(made, home)
        except UserError as failure:
            lacks, code = [str(failure)], failure.exit_code
    root, config = home.directory.root, home.directory.config
    if home.settings is None:
        kept = f"Nothing was changed in {root}; this node's settings are in {config}"
    else:
        home.keep(made, anchor)
        kept = (
            f"{root} holds this node from now on: its keys, the genesis, and its settings in "
            f"{config}"
        )
    rows = lacks if len(lacks) == 1 else [f"{at}. {told}" for at, told in enumerate(lacks, 1)]
    raise UserError(
        "\n".join(
            [
                f"this host cannot train what {made.job.name} trains yet:",
                *rows,
                f"{kept}. Nobody was told of it, and no use of the invite was taken. Do what is "
                "said above, and give the same line again",
            ]
        ),
        exit_code=code,
    )


async def _want_again(directory: DataDirectory, chain_id: ChainId) -> None:
    """Who retired from this network and joins it again is to train. Raises StorageFailed."""
    if has_retired(directory, chain_id):
        await Withdrawal(DiskBlobStore(directory.work_of(chain_id.hex()))).forget()


async def _look(invite: Invite, home: Home) -> Found:
    """From the first address at which the inviter answers. Raises UserError."""
    reasons = []
    for address in invite.dialled:
        visit = joining.Visit(
            address,
            invite.chain_id,
            home.keys,
            tuple(Address(text) for text in home.config.network.listen),
            REMEDIES,
        )
        try:
            return await visit.during(partial(_look_around, invite, address))
        except _Refused as refusal:
            raise UserError(REFUSED[refusal.word], exit_code=1) from None
        except UserError as failure:
            reasons.append(str(failure))
    raise UserError("; ".join(reasons), exit_code=1)


REMEDIES = {
    **joining.REMEDIES,
    "wrong-chain": "it is a node of another network than the invite names: its operator has begun "
    "a new one since. Ask for a new invite",
}


class _Refused(UserError):
    """The inviter's own word, which no other address changes."""

    def __init__(self, word: Refusal) -> None:
        super().__init__(str(word))
        self.word = word


async def _look_around(invite: Invite, address: Address, visit: joining.Visit) -> Found:
    _check_inviter(visit, invite, address)
    prospect = await _presented(visit, invite, None)
    made = await visit.ask_genesis()
    return Found(made, prospect, address, await visit.is_dialled_back(DIALLED_BACK_S))


def _check_inviter(visit: joining.Visit, invite: Invite, address: Address) -> None:
    """Nobody else gets the token. Raises UserError."""
    if visit.node_id != invite.inviter:
        raise UserError(f"{address} is another node than the one that invites you", exit_code=1)


async def _presented(visit: joining.Visit, invite: Invite, enrolment: Enrolment | None) -> Prospect:
    body = encode_request(invite.token, enrolment)
    answer = await visit.ask(invitations.REQUEST, body, invitations.ANSWER_BYTES_MAX)
    said = decode_answer(answer)
    if isinstance(said, Refusal):
        raise _Refused(said)
    return said


def _come_in(invite: Invite, found: Found, home: Home) -> None:
    """Raises UserError."""
    keys, until = home.keys, enrolment_until(found.prospect.next_round)
    request = TrainerRequest(Enroll(keys.node_id, MemberKeys.of(keys).encode()), until)
    enrolment = Enrolment(request, sign(request.statement(invite.chain_id), keys).signature)

    async def talk(visit: joining.Visit) -> Prospect:
        _check_inviter(visit, invite, found.address)
        return await _presented(visit, invite, enrolment)

    visit = joining.Visit(found.address, invite.chain_id, keys, (), REMEDIES)
    try:
        trio.run(visit.during, talk)
    except _Refused as refusal:
        raise UserError(REFUSED[refusal.word], exit_code=1) from None


def _anchor_of(trust: str | None) -> VertexId | None:
    if trust is None:
        return None
    try:
        found = bytes.fromhex(trust)
    except ValueError:
        found = b""
    if len(found) != DIGEST_BYTES:
        raise UserError(
            f"--trust {trust[:80]}: the whole id of a vertex, {2 * DIGEST_BYTES} hexadecimal "
            "digits; `daa-node checkpoint show` tells it on a host that you trust"
        )
    return VertexId(found)


def _free_bytes(directory: Path) -> int:
    """Where it lies, or will."""
    place = directory.resolve()
    while not place.exists():
        place = place.parent
    return shutil.disk_usage(place).free


def _speed(made: Genesis, home: Home) -> Speed:
    report.note("measuring this machine for some seconds ...")
    trainer = identity.trainer_settings(home.config, home.directory)
    job = training_job(made, home.directory, home.config)
    with temporary_room() as room:
        return measured(made.job, job, trainer, room)


def _is_confirmed() -> bool:
    return report.is_confirmed("Join it and train?")


def _run(wanted: Wanted, joined: Joined) -> None:
    run_daemon(wanted.directory, None, (), wanted.with_parent, joined=joined)


@dataclass(frozen=True, slots=True)
class Hands:
    """What joining does beside asking others: it takes this machine, its person, or for ever."""

    measure: Measure = _speed
    free_bytes: Callable[[Path], int] = _free_bytes
    confirm: Callable[[], bool] = _is_confirmed
    run: Callable[[Wanted, Joined], None] = _run


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _listed(parts: Mapping[str, int]) -> str:
    return ", ".join(f"{what} {report.size(size)}" for what, size in parts.items())


def told(invite: Invite, found: Found, costs: Costs, free_bytes: int, speed: Speed) -> list[str]:
    """What a person wants to know before the yes."""
    made, prospect = found.made, found.prospect
    job, model = made.job, made.job.model
    code = f" of {model.path}, somebody's code" if model.path is not None else ""
    fit, noun = speed.steps_in_time, "pictures" if job.data.are_pictures else "tokens"
    pace = f"{fit} of a round's {speed.steps_max} steps fit into its {speed.train_s:.1f} s"
    if fit == 0:
        pace = f"NOT ONE step fits into a round's {speed.train_s:.1f} s: it would never count"
    reach = {
        True: "others can dial this machine",
        False: "others cannot dial this machine: it dials them, or a node relays",
        None: "not measured: nobody has tried to dial this machine",
    }[found.is_dialled]
    return [
        f"network    {job.name}, chain {made.chain_id.hex()}",
        f"model      {model.kind}{code}, {model.parameter_count():,} parameters",
        f"data       {job.data.kind}",
        f"by whom    {_count(prospect.validators, 'validator')} and "
        f"{_count(prospect.trainers, 'trainer')}; round {prospect.next_round} comes next",
        f"invited by {invite.inviter.hex()}",
        f"download   about {report.size(costs.download_bytes)}: {_listed(costs.parts)}",
        f"each round about {report.size(costs.round_bytes)} down: {_listed(costs.round_parts)}",
        f"disk       about {report.size(costs.disk_bytes)}, {report.size(free_bytes)} are free",
        f"device     {speed.device}",
        f"speed      {speed.tokens_per_s:,.0f} {noun} a second; {pace}",
        f"reach      {reach}",
    ]
