"""What the agreement asks of whoever collects the open round."""

from typing import Protocol

from daa_consensus.bft.messages import OfferBody, SetPayload
from daa_consensus.votes import Signed


class OpenRound(Protocol):
    """Hears a round's words, proposes a set, judges one, and holds the data of a decided one."""

    def hear(self, signed: Signed) -> None:
        """An Offer or Ack of this round, verified. Raises PeerFault."""

    async def proposal(self) -> SetPayload:
        """The set to propose, once the round's window has ended."""

    async def judge(self, proposed: SetPayload) -> str | None:
        """None if the set may be notarized, else why not; waits until that is known."""

    async def hold_all(self, offers: tuple[OfferBody, ...]) -> None:
        """Return once every contribution is stored here and checked."""
