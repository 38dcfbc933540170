"""What there is to decide: how far this node's rounds have come, and which payload that calls for.

The host tells of windows that ended, Exec quorums and deadlines, and each moves one number forward.
"""

from daa_consensus.bft.chain import Chain, Fit, Place
from daa_consensus.bft.events import ExecCertified
from daa_consensus.bft.messages import AbortPayload, ResultPayload


class Agenda:
    """The newest round of each kind of news; older news changes nothing."""

    def __init__(self, executed: int) -> None:
        self.executed = executed  # signed Exec of
        self._ready = 0
        self._abort_due = 0
        self._exec: ExecCertified | None = None

    @property
    def certified(self) -> int:
        """The newest round with an Exec quorum."""
        return self._exec.round if self._exec is not None else 0

    def window_ended(self, round_: int) -> None:
        self._ready = max(self._ready, round_)

    def exec_signed(self, round_: int) -> None:
        self.executed = max(self.executed, round_)

    def exec_certified(self, news: ExecCertified) -> None:
        if news.round > self.certified:
            self._exec = news

    def abort_due(self, round_: int) -> None:
        self._abort_due = max(self._abort_due, round_)

    def abort_is_due(self, round_: int) -> bool:
        return self._abort_due >= round_

    def nothing_to_decide(self, chain: Chain) -> bool:
        """Whether the newest final block is all that this node could ask for by now."""
        height = chain.tip.height
        if chain.tip_open:
            return self.certified < height and not self.abort_is_due(height)
        return self._ready <= height

    def closing(self, round_: int) -> ResultPayload | AbortPayload | None:
        """How this node would close the open round, if it can by now."""
        if self._exec is not None and self._exec.round == round_:
            return ResultPayload(round_, self._exec.vertex_id, self._exec.result_root)
        if self.abort_is_due(round_) and max(self.executed, self.certified) < round_:
            return AbortPayload(round_)
        return None

    def assess_result(self, payload: ResultPayload) -> Place:
        """Whether an Exec quorum stands behind this result of the open round."""
        if self.certified < payload.round or self._exec is None:
            return Place(Fit.WAIT, f"no execution certificate of round {payload.round} yet")
        if (payload.vertex_id, payload.result_root) != (
            self._exec.vertex_id,
            self._exec.result_root,
        ):
            return Place(Fit.REFUSE, "the execution certificate says otherwise")
        return Place(Fit.FITS)
