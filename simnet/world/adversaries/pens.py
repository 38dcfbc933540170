"""The keys that a liar signs with: its node's, and those that it makes up.

    sign, request, approval   statements of the key whose turn it is
    sealed(value)             signed again by whichever key of ours each signer is: it verifies

Nothing is signed in the name of anybody else: what others have signed stays as it is.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import is_dataclass, replace
from typing import Any, cast

from daa_consensus.bft.messages import Block, SetPayload
from daa_consensus.operations import Approve, Operation, Request, signers_of
from daa_consensus.votes import Certificate, Kind, Signed, Statement
from daa_dag.ids import NodeId
from daa_node.agreement.messages import Proposed
from simnet.world.adversaries.behaviour import Pen, Voice
from simnet.world.adversaries.shapes import fields_of

STRANGERS_MAX = 40  # keys of one liar: more than any list of a small network holds


class Pens:
    """Of one liar."""

    def __init__(self, voice: Voice) -> None:
        self.voice = voice
        self.held: dict[NodeId, Pen] = {}
        self.own = self._take(0)
        self.writer = self.own

    def _take(self, number: int) -> Pen:
        pen = self.voice.pen(number)
        self.held[pen.node_id] = pen
        return pen

    def stranger(self) -> Pen:
        """A key that nobody has seen, as long as there are some."""
        return self._take(len(self.held)) if len(self.held) <= STRANGERS_MAX else self.any()

    def any(self) -> Pen:
        """Of those that it has."""
        return self.voice.chance.choice(list(self.held.values()))

    @contextmanager
    def writing(self, pen: Pen) -> Iterator[None]:
        """Whose statements are made up now."""
        before, self.writer = self.writer, pen
        try:
            yield
        finally:
            self.writer = before

    def owns(self, request: Request) -> bool:
        """Whether all who must sign it are ours."""
        return all(signer in self.held for signer in signers_of(request.action))

    def sign(self, statement: Statement) -> Signed:
        """The statement under the writer's key; an Offer is of who signs it, and of its round."""
        if statement.kind is Kind.OFFER:
            round_, _, *others = cast(list[Any], statement.value)
            value = [round_, self.writer.node_id, *others]
            statement = replace(statement, height=round_, value=value)
        return self.writer.sign(statement)

    def request(self, request: Request) -> Operation:
        """The request with its signatures; where a signer is not ours, one that is no good."""
        statement, pairs = request.statement(self.voice.domain.chain_id), []
        for signer in signers_of(request.action):
            pen = self.held.get(signer, self.own)
            pairs.append((signer, pen.sign(statement).signature))
        return Operation(request, tuple(pairs))

    def approval(self, operation: Operation) -> Operation:
        """The writer's, of what the operation asks for."""
        action = Approve(self.writer.node_id, operation.request.id)
        return self.request(Request(action, operation.request.expires_epoch))

    def certified(self, like: Statement, others: dict[NodeId, bytes]) -> Certificate:
        """By those others, and by the writer."""
        own = self.writer.sign(like)
        return Certificate(like, tuple(sorted({**others, own.signer: own.signature}.items())))

    def sealed(self, thing: Any) -> Any:
        """The thing with every signature that is ours to give."""
        match thing:
            case Signed(statement, signer) if signer in self.held:
                with self.writing(self.held[signer]):
                    return self.sign(statement)
            case Operation(request) if self.owns(request):
                return self.request(request)
            case Proposed(signed, block) if signed.signer in self.held:
                domain = signed.statement.domain
                about = Statement(domain, Kind.PROPOSAL, block.view, block.height, block.id)
                return replace(thing, signed=self.sealed(replace(signed, statement=about)))
            case Signed() | Operation() | Proposed() | Certificate() | Block():
                return thing
        if not is_dataclass(thing):
            return thing
        changed = {
            place: self.sealed(getattr(thing, place))
            for place, _ in fields_of(cast(type, type(thing)))
            if is_dataclass(getattr(thing, place))
        }
        return fitting(replace(cast(Any, thing), **changed))


def fitting(thing: Any) -> Any:
    """What every decoder asks of a set first, so that the lie is one that somebody reads."""
    match thing:
        case SetPayload(offers=offers, weights=weights, round=round_):
            weights = (*weights, *[1] * len(offers))[: len(offers)]
            of_round = tuple(replace(each, round=round_) for each in offers)
            return replace(thing, weights=weights, offers=of_round)
        case _:
            return thing
