"""What tells a node that it is behind when nobody that it knows to vote tells it so.

    a quorum is heard ---------> nothing to do: its members say how far they are
    silence for silence_s, or for
    LAG_S, in a round, with
    heads above ours ----------> a few of those connected, whoever they are, are asked for a page
      it follows from our tip -> the agreement is told, the job runner follows, the next is asked
      nothing, or nonsense ----> others are asked, as much later

Nobody writes to who only looks on: it hears heads by gossip, and members say no more than their own
committee and the one before need to believe them. Who is further behind may need more, so for it
silence is a tip that stands. Who has left, and lacks the last block of those who wrote to it, waits
in a round for messages that never come, but hears heads as well. Outside of a round the job runner
follows heads by itself.

While a node is away, a whole committee may leave, seat by seat, and stop. Its successors are
strangers then, and what they say of themselves is not believed. A page is: the committee that the
node knows made it final, up to the block that names the next committee. So anybody may bring it.

Keys that have left may leak, and a quorum of them can sign another past (a long-range attack; after
Buterin, "Proof of Stake: How I Learned to Love Weak Subjectivity", 2014). Pages that both prove
themselves and close one round differently show it: none of them is believed, and no more are
asked for. Who asks only liars, sees one past only.
"""

from collections.abc import Collection, Mapping, Set

import trio

from daa_consensus.bft.messages import AbortPayload, Block, ResultPayload
from daa_dag.ids import BlockId, NodeId
from daa_node.agreement.positions import believed
from daa_node.agreement.wan_bft import WanBft
from daa_node.checkpoints.chain import ChainStore
from daa_node.checkpoints.pages import check_headers
from daa_node.checkpoints.publish import Page
from daa_node.errors import PeerFault, Unavailable
from daa_node.identity.validators import Validators
from daa_node.network.contacts import Contacts
from daa_node.observability import events
from daa_node.observability.events import EventLog
from daa_node.rounds.job_runner import JobRunner
from daa_node.rounds.peers import Peers

SILENCE_DELTAS = 40  # a dozen views; longer than a restart and most partitions
SILENCE_S_MIN = 30.0  # two greetings of each member of the largest network, however short delta is
LAG_S = 5.0  # to conclude what others have published, or to hear that it is final
ASKED_MAX = 4  # at once: one honest among them shows a forged past to be one of two
OTHERS_S = 2.0  # after the first page: time for another one that contradicts it
FOLLOWED_LOOK_S = 0.5


def silence_s(delta_s: float) -> float:
    """For how long nobody must have been heard before just anybody is asked, and between asks."""
    return max(SILENCE_S_MIN, SILENCE_DELTAS * delta_s)


def is_silent(me: NodeId, validators: Validators, heard: Set[NodeId], has_moved: bool) -> bool:
    """Whether less than a quorum of those who vote, as far as we know, has told us anything lately.

    `heard` have written to us since, and our newest published block `has_moved` or has not.
    """
    if me not in validators.listeners:
        return not has_moved
    committee = validators.now.committee
    return committee.weight({*heard, me}) < committee.quorum


def contradict(pages: Collection[Page]) -> int | None:
    """A round that two of the pages close with different blocks; None if they agree."""
    closings: dict[int, BlockId] = {}
    for page in pages:
        for block in page.blocks:
            match block.payload:
                case ResultPayload(round=closed) | AbortPayload(round=closed):
                    if closings.setdefault(closed, block.id) != block.id:
                        return closed
                case _:
                    pass
    return None


class Rota:
    """Whom to ask next: who has been of no use comes later, and so does who has come later."""

    def __init__(self) -> None:
        self._useless: dict[NodeId, int] = {}

    def next(self, present: Collection[NodeId]) -> list[NodeId]:
        """At most ASKED_MAX of those present, of no use until they `helped`."""
        known = {name: times for name, times in self._useless.items() if name in present}
        # A new name is no better than one that was asked in vain: else ever new ones would keep out
        # all who had nothing while there was nothing new.
        last = max(known.values(), default=0)
        self._useless = known | {n: last for n in sorted(present) if n not in known}
        chosen = sorted(self._useless, key=self._useless.__getitem__)[:ASKED_MAX]
        for name in chosen:
            self._useless[name] += 1
        return chosen

    def helped(self, name: NodeId) -> None:
        self._useless[name] = 0


class Scout:
    """One node's. `run` asks; `found` is what the job runner may follow."""

    def __init__(
        self,
        runner: JobRunner,
        agreement: WanBft,
        chain: ChainStore,
        peers: Peers,
        contacts: Contacts,
        log: EventLog,
    ) -> None:
        self._runner = runner
        self._agreement = agreement
        self._chain = chain
        self._peers = peers
        self._contacts = contacts
        self._log = log
        self._rota = Rota()
        self._found: tuple[BlockId, dict[NodeId, Page]] = (BlockId(b""), {})

    async def run(self) -> None:
        """Until cancelled, or until two pasts were seen."""
        quiet_s = silence_s(self._agreement.delta_s)
        while True:
            before = await self._chain.resume_point()
            with trio.move_on_after(quiet_s) as patience:
                await self._until_left_behind()
            has_moved = (await self._chain.resume_point()).id != before.id
            is_lost = not patience.cancelled_caught or self._is_silent(quiet_s, has_moved)
            if is_lost and await self._meets_two_pasts(quiet_s):
                return

    async def _until_left_behind(self) -> None:
        """Return when a round stays open here that members surely have left, and none writes."""
        while True:
            left = self._round_left()
            await trio.sleep(LAG_S)
            stands = left is not None and left == self._round_left()
            if stands and self._is_silent(LAG_S, has_moved=False):
                return

    def _round_left(self) -> int | None:
        """The last round before the one we are in, if heads are above ours."""
        runner, committee = self._runner, self._agreement.validators.now.committee
        if not runner.in_round:
            return None
        told = believed(self._contacts.heights(), committee) or 0
        return runner.round if told > runner.newest.height else None

    async def _meets_two_pasts(self, within_s: float) -> bool:
        """Ask for page after page until none comes, or is followed in time, or two disagree."""
        while True:
            tip = await self._chain.resume_point()
            pages = await self._ask(tip)
            forked = contradict(pages.values())
            if forked is not None:
                self._log.emit(events.PAST_FORKED, round=forked, sources=sorted(pages))
                return True
            if not pages:
                return False
            await self._tell(tip, pages)
            if not await self._followed(tip, within_s):
                return False

    def found(self, tip: Block) -> Mapping[NodeId, Page]:
        """Pages right above the tip, their headers checked, by who brought them. Each once."""
        (above, pages), self._found = self._found, (BlockId(b""), {})
        return pages if above == tip.id else {}

    def _is_silent(self, quiet_s: float, has_moved: bool) -> bool:
        agreement = self._agreement
        heard = agreement.heard_since(trio.current_time() - quiet_s)
        return is_silent(agreement.me, agreement.validators, heard, has_moved)

    async def _ask(self, tip: Block) -> dict[NodeId, Page]:
        """What those asked have above the tip, as far as it is final."""
        pages: dict[NodeId, Page] = {}
        async with trio.open_nursery() as nursery:

            async def ask(node: NodeId) -> None:
                try:
                    validators = self._agreement.validators.copy()
                    page = await self._peers.ask_page(node, tip, validators)
                    if page is not None:
                        check_headers(page, tip, validators)
                        pages[node] = page
                        self._rota.helped(node)
                        soon_s = trio.current_time() + OTHERS_S
                        nursery.cancel_scope.deadline = min(nursery.cancel_scope.deadline, soon_s)
                except PeerFault as fault:
                    self._contacts.fault(node, fault)
                except Unavailable:
                    pass  # another one is asked the next time

            for node in self._rota.next(self._contacts.anybody()):
                nursery.start_soon(ask, node)
        return pages

    async def _tell(self, tip: Block, pages: dict[NodeId, Page]) -> None:
        self._found = (tip.id, pages)
        self._log.emit(events.SCOUTED, height=tip.height, sources=sorted(pages))
        for page in pages.values():
            await self._agreement.caught_up(page.certificate, page.blocks)

    async def _followed(self, tip: Block, within_s: float) -> bool:
        """Whether the job runner has left the tip in time."""
        with trio.move_on_after(within_s):
            while (await self._chain.resume_point()).id == tip.id:
                await trio.sleep(FOLLOWED_LOOK_S)
            return True
        return False
