"""Following others by pages of checkpoints, as daa_node/rounds/course.py does for a whole node.

    behind, or nobody writes to us --ask a member--> page --checked--> archive, machine
    no quorum is heard any more -------ask anybody--+

A member asks when more than f weight says that it is rounds behind, as the daemon does. To who is
no member nobody writes, so it asks whenever nothing has become final here for a while. When those
who vote, as far as it knows, are silent, it asks whom daa_node/rounds/scouting.py would ask. Here
each answer counts by itself: nobody can sign another past with keys that are not its own.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, cast

import trio

from daa_consensus.bft.events import CertificateArrived
from daa_consensus.bft.messages import Block
from daa_dag import canonical
from daa_node.checkpoints.chain import ChainStore
from daa_node.checkpoints.page_server import page_after
from daa_node.checkpoints.pages import WORD, asked_blocks, check_headers, decode_page, page_value
from daa_node.errors import PeerFault
from daa_node.identity.validators import Validators
from daa_node.rounds.scouting import Rota, is_silent, silence_s
from daa_node.seams import PeerId
from simnet.links import NS

if TYPE_CHECKING:
    from simnet.heap.consensus_contact import Contact
    from simnet.heap.consensus_host import Host
    from simnet.heap.consensus_life import Life
    from simnet.heap.consensus_requests import Requests

LOOK_DELTAS = 6  # between looks whether there is something to follow


class Course:
    """One life's."""

    def __init__(
        self,
        host: "Host",
        life: "Life",
        contact: "Contact",
        requests: "Requests",
        validators: Validators,
        connected: Callable[[], list[int]],
        anybody: Callable[[], list[int]],
    ) -> None:
        """`connected`: members that can be asked now, by number; `anybody`: all nodes that can."""
        self._host = host
        self._life = life
        self._contact = contact
        self._requests = requests
        self._validators = validators
        self._connected = connected
        self._anybody = anybody
        self._seen = 0  # the newest final view at the last look
        self._rota = Rota[int]()
        self._silence_s = silence_s(contact.delta_ns / NS)
        self._scouted_s = trio.current_time()  # of the last look whether all are silent
        self._stood_at = host.disk.archive.resume_point  # at that look

    def serve(self) -> None:
        """Answer pages from now on."""
        self._requests.register(WORD, self._answer)

    async def _answer(self, _peer_id: PeerId, body: bytes) -> bytes:
        page = await page_after(cast(ChainStore, self._host.disk.archive), asked_blocks(body)[0])
        return canonical.encode(page_value(page))

    def look(self) -> None:
        """Ask somebody for a page if one is wanted, and look again after a while."""
        self._contact.later(LOOK_DELTAS * self._contact.delta_ns, self.look)
        if self._is_behind():
            self._ask_member()
        now_s = trio.current_time()
        if now_s - self._scouted_s < self._silence_s:
            return
        silent = self._is_silent(now_s - self._silence_s)
        self._scouted_s, self._stood_at = now_s, self._host.disk.archive.resume_point
        if silent:
            for node in self._rota.next(self._anybody()):
                self._ask(node, self._take_of_anybody)

    def _ask_member(self) -> None:
        connected = self._connected()
        if connected:
            self._ask(self._host.chance.choice(connected), self._take)

    def _ask(self, node: int, take: Callable[[int, Block, bytes], None]) -> None:
        tip = self._host.disk.archive.resume_point
        self._requests.put(node, WORD, tip.id, lambda answer: take(node, tip, answer))

    def _is_silent(self, since_s: float) -> bool:
        has_moved = self._host.disk.archive.resume_point is not self._stood_at
        heard = self._life.heard_since(since_s)
        return is_silent(self._host.me, self._validators, heard, has_moved)

    def _is_behind(self) -> bool:
        view = self._life.machine.known.chain.tip.view
        quiet, self._seen = view == self._seen, view
        listened = self._host.me in self._validators.listeners()
        return self._life.rounds_behind() > 0 or (quiet and not listened)

    def _take(self, member: int, tip: Block, answer: bytes) -> None:
        if self._follow(member, tip, answer):
            self._ask_member()  # until nobody asked has more

    def _take_of_anybody(self, node: int, tip: Block, answer: bytes) -> None:
        if self._host.disk.archive.resume_point is not tip:
            return  # another one was quicker
        if self._follow(node, tip, answer):
            self._contact.mark("chain found through just anybody")
            self._rota.helped(node)
            self._ask(node, self._take_of_anybody)

    def _follow(self, node: int, tip: Block, answer: bytes) -> bool:
        """Whether the answer is a page that leads on from the tip."""
        try:
            page = decode_page(answer, self._validators.limits)
            if page is None:
                return False
            check_headers(page, tip, self._validators.copy())
        except PeerFault as fault:
            self._contact.misled(node, fault)
            return False
        self._contact.publisher.publish_page(page)
        self._contact.mark("page of checkpoints followed")
        *below, newest = page.blocks
        self._life.tell(CertificateArrived(page.certificate, newest, tuple(below)))
        return self._host.disk.archive.resume_point is not tip
