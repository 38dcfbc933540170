"""What is said about rounds outside of views: Offers, Acks and Execs, heard, kept and sent again.

Statements of the open round reach its listener at once; those of the next round wait for it to
open, since peers enter it at different moments; older ones are over. What we said ourselves is said
again until the round is resolved: links drop messages. Memory: three statements a member and round.
"""

from collections import defaultdict
from collections.abc import Callable

from daa_consensus.votes import Certificate, Kind, Signed, Statement
from daa_dag.ids import NodeId
from daa_node.agreement.parts import OpenRound
from daa_node.errors import PeerFault
from daa_node.identity.validators import Validators

ROUNDS_AHEAD_MAX = 2  # peers may be one resolved round ahead of us, and already in the next


class RoundTalk:
    """Statements about the open round and the ones right after it."""

    def __init__(
        self, validators: Validators, on_fault: Callable[[NodeId, PeerFault], None]
    ) -> None:
        self._validators = validators
        self._on_fault = on_fault
        self.round = 0  # the open one, or the newest that was; 0 before there is one
        self._first_round = 0  # that this process has opened; of older ones it cannot tell
        self._listener: OpenRound | None = None
        # round -> (kind, signer) -> the newest such statement
        self._heard: dict[int, dict[tuple[Kind, NodeId], Signed]] = defaultdict(dict)
        self._own: dict[int, dict[Kind, Signed]] = defaultdict(dict)

    def open(self, round_number: int, listener: OpenRound) -> None:
        """Hand the round's statements to `listener`, starting with those that came early."""
        self.round, self._listener = round_number, listener
        self._first_round = self._first_round or round_number
        for past in [r for r in self._heard if r < round_number - 1]:
            del self._heard[past]
        for past in [r for r in self._own if r < round_number - 1]:
            del self._own[past]
        # What came early may name a committee with which the epoch then did not begin. Nobody else
        # believes that any more, so that what it made eligible here could be shown to nobody.
        domain = self._validators.domain(self._validators.epoch_of(round_number))
        early = self._heard[round_number].items()
        self._heard[round_number] = {k: s for k, s in early if s.statement.domain == domain}
        for signed in list(self._heard[round_number].values()):
            self._pass_on(signed)

    def listener(self, round_number: int) -> OpenRound | None:
        """Who collects the round, while it is the open one."""
        return self._listener if round_number == self.round else None

    def resolved(self, round_number: int) -> None:
        """The round is final: nothing more of it is handed on."""
        if round_number >= self.round:
            self._listener = None

    def hear(self, signed: Signed) -> Certificate | None:
        """Take a verified statement; an execution certificate if this Exec completed one."""
        statement = signed.statement
        if not self.round - 1 <= statement.height <= self.round + ROUNDS_AHEAD_MAX:
            return None
        heard, key = self._heard[statement.height], (statement.kind, signed.signer)
        before = heard.get(key)
        if before is not None and _same_statement(before.statement, signed.statement):
            return None
        if before is not None and (statement.kind is not Kind.ACK or _says_less(signed, before)):
            # The first statement counts; two different ones are evidence, which the caller
            # collects. Of Acks the newest is kept for latecomers; the listener keeps all that
            # count.
            return None
        heard[key] = signed
        if statement.kind is Kind.EXEC:
            return self._execution(statement)
        over = self._listener is None and statement.height == self.round
        if statement.height == self.round and not over:
            self._pass_on(signed)
        elif statement.kind is Kind.OFFER and (
            over or self._first_round <= statement.height < self.round
        ):
            self._on_fault(signed.signer, PeerFault("late_offer", f"round {statement.height}"))
        return None

    def first_heard(self, signed: Signed) -> Signed | None:
        """What this signer said in the same slot before, if we remember it."""
        key = (signed.statement.kind, signed.signer)
        return self._heard.get(signed.statement.height, {}).get(key)

    def sent(self, signed: Signed) -> None:
        """Remember our own statement, to send it again."""
        self._own[signed.statement.height][signed.statement.kind] = signed

    def recall(self, signed: Signed) -> Certificate | None:
        """Our own Offer or Exec of an earlier life: sent again, and counted like any other."""
        self.sent(signed)
        statement = signed.statement
        self._heard[statement.height][statement.kind, signed.signer] = signed
        return self._execution(statement) if statement.kind is Kind.EXEC else None

    def own_statement(self, kind: Kind, round_number: int) -> Signed | None:
        return self._own.get(round_number, {}).get(kind)

    def own_statements(self) -> list[Signed]:
        """What we said of the open round, and our Exec of the one before.

        Peers may still be there; of a round that is decided they need nothing else.
        """
        executed = self.own_statement(Kind.EXEC, self.round - 1)
        before = [] if executed is None else [executed]
        return [*before, *self._own.get(self.round, {}).values()]

    def heard_statements(self, round_number: int) -> list[Signed]:
        """The first Offer and the newest Ack of everybody in the round, our own too."""
        heard = self._heard.get(round_number, {})
        return [signed for (kind, _), signed in sorted(heard.items()) if kind is not Kind.EXEC]

    def _execution(self, like: Statement) -> Certificate | None:
        """The execution certificate of these statements, if a quorum said them."""
        committee = self._validators.committee(self._validators.epoch_of(like.height))
        heard = self._heard[like.height].items()
        said = [(signer, signed) for (kind, signer), signed in heard if kind is Kind.EXEC]
        if committee.weight({signer for signer, _ in said}) < committee.quorum:
            return None  # whatever they say: each of a hundred comes alone
        same = [(n, s.signature) for n, s in said if _same_statement(s.statement, like)]
        if committee.weight({signer for signer, _ in same}) < committee.quorum:
            return None
        return Certificate(like, tuple(sorted(same)))

    def _pass_on(self, signed: Signed) -> None:
        if self._listener is None or signed.statement.kind is Kind.EXEC:
            return
        try:
            self._listener.hear(signed)
        except PeerFault as fault:
            self._on_fault(signed.signer, fault)


def _same_statement(one: Statement, other: Statement) -> bool:
    """Whether the two come to the same bytes; equal statements cost no encoding."""
    return one == other or one.sign_bytes() == other.sign_bytes()


def _says_less(ack: Signed, before: Signed) -> bool:
    now, then = ack.statement.value, before.statement.value
    assert isinstance(now, list), "an Ack's shape was checked when it was decoded"
    assert isinstance(then, list)
    # Each names distinct ones, and the longer one names something else.
    return len(now) <= len(then) and set(now) <= set(then)
