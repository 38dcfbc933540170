"""Following others by pages of checkpoints, as daa_node/rounds/course.py does for a whole node.

    behind, or nobody writes to us --ask who is connected--> page --checked--> archive, machine

A member asks when more than f weight says that it is rounds behind, as the daemon does. To who is
no member nobody writes, so it asks whenever nothing has become final here for a while.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from daa_consensus.bft.events import CertificateArrived
from daa_consensus.bft.messages import Block
from daa_dag import canonical
from daa_node.checkpoints.chain import ChainStore
from daa_node.errors import PeerFault
from daa_node.identity.validators import Validators
from daa_node.rounds.catch_up import (
    WORD,
    asked_block,
    check_headers,
    decode_page,
    page_after,
    page_value,
)
from daa_node.seams import PeerId

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
    ) -> None:
        """`connected`: members that can be asked now, by number."""
        self._host = host
        self._life = life
        self._contact = contact
        self._requests = requests
        self._validators = validators
        self._connected = connected
        self._seen = 0  # the newest final view at the last look

    def serve(self) -> None:
        """Answer pages from now on."""
        self._requests.register(WORD, self._answer)

    async def _answer(self, _peer_id: PeerId, body: bytes) -> bytes:
        page = await page_after(cast(ChainStore, self._host.disk.archive), asked_block(body))
        return canonical.encode(page_value(page))

    def look(self) -> None:
        """Ask somebody for a page if one is wanted, and look again after a while."""
        self._contact.later(LOOK_DELTAS * self._contact.delta_ns, self.look)
        if self._is_behind():
            self._ask()

    def _ask(self) -> None:
        connected, tip = self._connected(), self._host.disk.archive.resume_point
        if not connected:
            return
        member = self._host.chance.choice(connected)
        self._requests.put(member, WORD, tip.id, lambda answer: self._take(member, tip, answer))

    def _is_behind(self) -> bool:
        view = self._life.machine.known.chain.tip.view
        quiet, self._seen = view == self._seen, view
        listened = self._host.me in self._validators.listeners()
        return self._life.rounds_behind() > 0 or (quiet and not listened)

    def _take(self, member: int, tip: Block, answer: bytes) -> None:
        try:
            page = decode_page(answer, self._validators.limits)
            if page is None:
                return
            check_headers(page, tip, self._validators.copy())
        except PeerFault as fault:
            self._contact.misled(member, fault)
            return
        self._contact.publisher.publish_page(page)
        self._contact.mark("page of checkpoints followed")
        *below, newest = page.blocks
        self._life.tell(CertificateArrived(page.certificate, newest, tuple(below)))
        if self._host.disk.archive.resume_point is not tip:
            self._ask()  # until nobody asked has more
