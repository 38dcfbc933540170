"""What the agreement asks of whoever collects the open round."""

from collections.abc import Sequence
from typing import Protocol

from daa_consensus.bft.messages import OfferBody, SetPayload
from daa_consensus.votes import Signed
from daa_dag.ids import ContributionRoot


class OpenRound(Protocol):
    """Hears a round's words, proposes a set, judges one, and holds the data of a decided one."""

    def hear(self, signed: Signed) -> None:
        """An Offer or Ack of this round, verified. Raises PeerFault."""

    async def proposal(self) -> SetPayload:
        """The set to propose, once the round's window has ended."""

    async def judge(self, proposed: SetPayload) -> str | None:
        """None if the set may be notarized, else why not; waits until that is known."""

    def lacks(self, roots: Sequence[ContributionRoot]) -> Sequence[ContributionRoot]:
        """Those of them that are not known here to have an Ack quorum."""

    def show(
        self, roots: Sequence[ContributionRoot]
    ) -> tuple[tuple[OfferBody, ...], tuple[Signed, ...]]:
        """Those of them that one letter can prove eligible, with the Acks that prove it."""

    def shown(self, offers: Sequence[OfferBody], acks: Sequence[Signed]) -> None:
        """What a member proves eligible, the Acks verified, is so here. Raises PeerFault."""

    async def hold_all(self, offers: tuple[OfferBody, ...]) -> None:
        """Return once every contribution is stored here and checked."""
