"""Whom to ask for the next page: whoever brings a block in the least time comes first.

An answer may take as long as a request may, and bring one block: who is asked by its name alone
could so lead a laggard at a pace at which it never arrives. A cost is seconds a block, smoothed,
and what brings nothing costs its seconds and a timeout's. Who was never asked costs nothing.
"""

from collections.abc import Callable

import trio

from daa_consensus.bft.messages import Block
from daa_dag.ids import NodeId
from daa_node.checkpoints.publish import Page
from daa_node.errors import PeerFault, Unavailable
from daa_node.identity.validators import Validators
from daa_node.network.requests import ANSWER_TIMEOUT_S
from daa_node.rounds.peers import Peers


class Guides:
    """The members and others that one course asks for pages."""

    def __init__(self, peers: Peers, fault: Callable[[NodeId, PeerFault], None]) -> None:
        self._peers = peers
        self._fault = fault
        self._cost_s: dict[NodeId, float] = {}  # of a block, by who was asked and is still here

    def members(self) -> list[NodeId]:
        """Those within reach, the cheapest first."""
        members = self._peers.reachable()
        self._cost_s = {node: cost for node, cost in self._cost_s.items() if node in members}
        return sorted(members, key=lambda node: (self._cost_s.get(node, 0.0), node))

    def failed(self, node: NodeId) -> None:
        """What it brought could not be followed."""
        self._note(node, ANSWER_TIMEOUT_S)

    async def ask(self, node: NodeId, tip: Block, validators: Validators) -> Page | None:
        """What follows `tip` there. Raises as Peers.ask_page does."""
        began_s, blocks = trio.current_time(), 0
        try:
            page = await self._peers.ask_page(node, tip, validators)
            blocks = 0 if page is None else len(page.blocks)
            return page
        finally:
            self._note(node, (trio.current_time() - began_s) / max(1, blocks))

    async def next_page(
        self, tip: Block, validators: Validators, asked_max: int | None
    ) -> Page | None:
        """What follows `tip` at the first member that has more; None if none of those asked has."""
        for node in self.members()[:asked_max]:
            try:
                page = await self.ask(node, tip, validators)
            except (PeerFault, Unavailable) as failure:
                if isinstance(failure, PeerFault):
                    self._fault(node, failure)
                self.failed(node)
                continue
            if page is not None:
                return page
        return None

    def _note(self, node: NodeId, cost_s: float) -> None:
        before_s = self._cost_s.get(node)
        self._cost_s[node] = cost_s if before_s is None else (before_s + cost_s) / 2
