"""What one validator has heard that is asked of the trainers' roll, until a set has it."""

from collections.abc import Sequence

from daa_consensus.enrolment import Enroll, Retire, TrainerRequest, Vouch
from daa_consensus.roll import Entry
from daa_dag.ids import NodeId
from simnet.nodes.heap.round_chain import Chain

POOL_MAX = 128  # requests that wait for a set
REQUESTS_A_SET_MAX = 16
EXPIRY_ROUNDS = 60  # of a request


class Pool:
    """Of the validator that goes by this name."""

    def __init__(self, name: NodeId, chain: Chain) -> None:
        self._name = name
        self._chain = chain
        self._waiting: dict[bytes, TrainerRequest] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def add(
        self, requests: Sequence[TrainerRequest], is_first_hand: bool
    ) -> tuple[TrainerRequest, ...]:
        """Keep these, and our word for strangers among them; what the others are to be told."""
        told = list(requests)
        if is_first_hand:
            told += [
                TrainerRequest(Vouch(self._name, each.id), each.expires_round)
                for each in requests
                if self._is_strangers(each)
            ]
        new = [each for each in told if each.id not in self._waiting]
        for each in new[: POOL_MAX - len(self._waiting)]:
            self._waiting[each.id] = each
        return tuple(told) if new and is_first_hand else ()

    def chosen(self) -> tuple[TrainerRequest, ...]:
        """As many as a set takes of those that the roll admits, enrolments before their word."""
        roll, members = self._chain.roll, self._chain.members
        chosen = dict[bytes, TrainerRequest]()
        for request in self._waiting.values():
            if len(chosen) >= REQUESTS_A_SET_MAX - 1:
                break
            if isinstance(request.action, Vouch):
                voucher, enrolment = request.action.voucher, request.action.request_id
                asked = self._waiting.get(enrolment)
                if asked is None or roll.vouched_by(voucher) >= roll.rules.per_voucher:
                    continue
                if roll.admits(asked, members):
                    chosen[asked.id], chosen[request.id] = asked, request
                elif roll.admits(request, members):
                    chosen[request.id] = request
            elif not self._is_strangers(request) and roll.admits(request, members):
                chosen[request.id] = request
        return tuple(chosen.values())

    def tidy(self) -> TrainerRequest | None:
        """Drop what is settled, or has expired. Where our quota is full: who is to make room.

        That is one of ours that was drawn and did not come, the one for longest.
        """
        chain = self._chain
        self._waiting = {
            key: request
            for key, request in self._waiting.items()
            if request.expires_round > chain.resolved and key not in chain.settled
        }
        if chain.roll.vouched_by(self._name) < chain.roll.rules.per_voucher:
            return None
        missing = [
            entry
            for entry in chain.roll.entries
            if entry.voucher == self._name and entry.until is None and self._is_awaited(entry)
        ]
        if not missing:
            return None
        gone = min(missing, key=lambda entry: (-entry.missed, entry.name))
        return TrainerRequest(Retire(gone.name, self._name), chain.resolved + EXPIRY_ROUNDS)

    def _is_awaited(self, entry: Entry) -> bool:
        return entry.missed > 0 or entry.is_drawn(self._chain.resolved + 1)

    def _is_strangers(self, request: TrainerRequest) -> bool:
        action = request.action
        return isinstance(action, Enroll) and self._chain.entry_of(action.subject) is None
