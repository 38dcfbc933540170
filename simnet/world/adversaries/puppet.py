"""A puppet: says anything that its key can sign, to whom it likes, in whatever order.

    own statement --withheld from some--> nothing
             --forked--> a face for each of its listeners, in time another one for everybody
             --as the machine said it--> kept back for a while, or told
    beside it, now and then: statements made up, varied, repeated, sent again long after; requests
    cloned under fresh keys and agreed to; two statements for one slot under each of its keys, or of
    a crowd that it has brought in for that

Statements are drawn from a grammar that the decoders' own types make (grammar.py), out of what was
heard; how often, of which kinds and towards whom is its temper (temper.py). Nothing here knows of
what it finds. Met by everything that honest nodes do.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import cast

from daa_consensus.bft.limits import Limits
from daa_consensus.bft.messages import SetPayload
from daa_consensus.bft.values import INT_MAX
from daa_consensus.operations import Operation
from daa_consensus.votes import Certificate, Kind, Signed, Statement
from daa_dag.errors import DagError
from daa_node.agreement.messages import (
    Asked,
    Body,
    Certified,
    Message,
    Position,
    Proposed,
    Stated,
    encode_message,
)
from daa_node.errors import PeerFault
from simnet.world.adversaries.acts import BY_NAME, REQUEST_TIMES, REQUESTS_MAX, Acts
from simnet.world.adversaries.behaviour import Behaviour, Voice
from simnet.world.adversaries.grammar import Composer
from simnet.world.adversaries.heard import Heard
from simnet.world.adversaries.pens import Pens
from simnet.world.adversaries.temper import Company, Temper
from simnet.world.adversaries.variations import Variations
from simnet.world.decoded_messages import decoded

OUTBOX_MAX = 48  # messages for one listener
KEPT_BACK_MAX = 16
FORKS_KEPT = 64  # the newest slots'
ALL_SEE_ONE_IN = 4  # of a list's items
PATIENCES = (1, 2, 6, INT_MAX)  # times that a face is shown before it is another one
POSITION_ONE_IN = 8  # messages of a puppet that lies about where it is

Slot = tuple[Kind, int, int, int]


class Fork:
    """One slot's statement with several faces, which change when they have been seen for long.

    Who does not see the statement itself sees another one, or none.
    """

    def __init__(self, mind: "Mind") -> None:
        self.mind = mind
        self._shown = 0
        self._patience = mind.chance.choice(PATIENCES)
        self._first = mind.company.circle(mind.chance.randrange(2))  # who sees the statement itself
        self._is_over = False
        self._sees: dict[bytes, frozenset[int]] = {}  # of a list's items: who sees them
        self._beside: bytes | None = None
        self._other: Signed | None = None

    def face(self, receiver: int, own: Signed) -> Signed | None:
        """What this listener gets for our statement."""
        self._shown += 1
        if not self._is_over and self._shown > self._patience * len(self.mind.company.known):
            self._is_over, self._other = True, None
            self._first = self._first if self.mind.temper.hides else frozenset()
        if isinstance(own.statement.value, list) and own.statement.kind is Kind.ACK:
            return self._listed(receiver, own)
        if receiver in self._first:
            return own
        if self.mind.temper.hides:
            return None
        if self._other is None:
            self._other = self.mind.variations.varied(own)
        return self._other

    def _listed(self, receiver: int, own: Signed) -> Signed:
        """The items that this listener is to see; in the end another one in place of some."""
        mind, value = self.mind, cast(list[bytes], own.statement.value)
        for item in value:
            if item not in self._sees:
                all_see = not mind.chance.randrange(ALL_SEE_ONE_IN)
                everybody = frozenset(mind.company.known)
                self._sees[item] = everybody if all_see else mind.company.some()
        if self._is_over and self._beside is None:
            self._beside = mind.chance.choice(
                [*mind.composer.heard.of("ContributionRoot"), mind.chance.randbytes(32)]
            )
            everybody = frozenset(mind.company.known)
            hidden = frozenset[int]()
            self._sees = {
                item: whom if whom == everybody else hidden for item, whom in self._sees.items()
            }
        seen = {item for item in value if receiver in self._sees[item]}
        if self._beside is not None:
            seen.add(self._beside)
        statement = replace(own.statement, value=sorted(seen))
        return cast(Signed, mind.pens.sealed(replace(own, statement=statement)))


class Mind:
    """One puppet's, from its first message on."""

    def __init__(self, voice: Voice, heard: Heard) -> None:
        self.chance = chance = voice.chance
        self._voice = voice
        room = voice.nodes + voice.nodes // 3 + 1
        self.pens = Pens(voice)
        self.composer = Composer(heard, self.pens, Limits(room, room))
        self.company = Company(chance)
        self.temper = temper = Temper.drawn(chance)
        self.variations = Variations(self.composer, chance, temper.focus, temper.ways)
        self.composer.actions = temper.actions
        self.composer.kinds = temper.kinds
        self.composer.is_odd = temper.is_odd
        self.acts = Acts(
            *(chance, temper, self.company, self.composer, self.variations),
            *(self.tell, self._may_ask),
        )
        self._from_whom = {kind: frozenset[int]() for kind in temper.withheld}
        self._forks: dict[Slot, Fork] = {}
        self._tampered: dict[bytes, Proposed] = {}
        self._outbox: defaultdict[int, list[Body]] = defaultdict(list)
        # Told to each listener, and how often.
        self._requests: defaultdict[int, Counter[Operation]] = defaultdict(Counter)
        self._kept_back: list[tuple[int, Body]] = []
        self.position = Position(0, 0, 0, 0, 0)
        self._beside: Message | None = None  # the machine's newest, told to all one by one,
        self._messages: dict[int, tuple[Body, bytes | None]] = {}  # and what goes along, by address

    def sends(self, receiver: int, message: Message) -> list[Message | bytes]:
        """What goes to the receiver instead of the message."""
        self.company.meet(receiver)
        view, round_ = self._voice.view, self._voice.round
        self.composer.now = {"view": view, "height": round_, "round": round_}
        self.position = message.position
        temper, chance = self.temper, self.chance
        if chance.random() < temper.pace:
            BY_NAME[chance.choice(temper.acts)](self.acts)
        told: list[Body] = []
        own = self._own(receiver, message.body)
        if own is not None:
            if temper.keeps_back and not chance.randrange(4):
                self._keep_back(receiver, own)
            else:
                told.append(own)
        told += self._outbox.pop(receiver, [])
        return [found for body in told if (found := self._told(body, message)) is not None]

    def _own(self, receiver: int, body: Body) -> Body | None:
        """The machine's own message, as far as it is told."""
        if isinstance(body, self.temper.secrets):
            return None
        match body:
            case Stated(signed) if signed.signer == self.pens.own.node_id:
                return self._said(receiver, body)
            case Certified(certificate) if self._has_withheld(receiver, certificate):
                return None
            case Proposed(signed) if signed.signer == self.pens.own.node_id:
                return self._proposed(receiver, body)
            case _:
                return body

    def _has_withheld(self, receiver: int, certificate: Certificate) -> bool:
        """Whether its own statement is in there, which the receiver is not to have."""
        signers = {signer for signer, _ in certificate.signatures}
        kind = certificate.statement.kind
        return self.pens.own.node_id in signers and self._is_kept_from(receiver, kind)

    def _is_kept_from(self, receiver: int, kind: Kind) -> bool:
        if kind not in self._from_whom:
            return False
        whom = self._from_whom[kind]
        if not whom:
            whom = self._from_whom[kind] = self.company.audience()
        return receiver in whom

    def _said(self, receiver: int, body: Stated) -> Body | None:
        statement = body.signed.statement
        if self._is_kept_from(receiver, statement.kind):
            return None
        if statement.kind not in self.temper.forked:
            return body
        found = self._fork(statement).face(receiver, body.signed)
        return None if found is None else Stated(found)

    def _fork(self, statement: Statement) -> Fork:
        slot = (statement.kind, statement.domain.epoch, statement.view, statement.height)
        if slot not in self._forks:
            self._forks[slot] = Fork(self)
            if len(self._forks) > FORKS_KEPT:
                del self._forks[next(iter(self._forks))]
        return self._forks[slot]

    def _proposed(self, receiver: int, body: Proposed) -> Body | None:
        if self._is_kept_from(receiver, Kind.PROPOSAL):
            return None
        if not self.temper.tampers:
            return body
        if body.block.id not in self._tampered:
            other = self._with_requests(body)
            for _ in range(self.chance.randint(min(1, self.temper.varied), self.temper.varied)):
                block = replace(other.block, payload=self.variations.varied(other.block.payload))
                other = self.pens.sealed(replace(other, block=block))
            self._tampered = {body.block.id: other}
            self.composer.heard.message(Message(self.position, other), is_others=True)
        is_told = Kind.PROPOSAL not in self.temper.forked or receiver in self.company.some()
        return self._tampered[body.block.id] if is_told else body

    def _with_requests(self, body: Proposed) -> Proposed:
        """With what it has asked for itself: half the times a leader puts that into its set."""
        payload, room = body.block.payload, self.composer.limits.operations_max
        if not isinstance(payload, SetPayload) or self.chance.randrange(2):
            return body
        operations = (*payload.operations, *self.acts.asked)[:room]
        block = replace(body.block, payload=replace(payload, operations=operations))
        return cast(Proposed, self.pens.sealed(replace(body, block=block)))

    def _keep_back(self, receiver: int, body: Body) -> None:
        """Told later, in another order."""
        self._kept_back.append((receiver, body))
        self.chance.shuffle(self._kept_back)
        if len(self._kept_back) > KEPT_BACK_MAX:
            for _ in range(KEPT_BACK_MAX // 2):
                self._put(*self._kept_back.pop())

    def _put(self, receiver: int, body: Body) -> None:
        if len(self._outbox[receiver]) >= OUTBOX_MAX:
            return
        if isinstance(body, Asked):
            told = self._requests[receiver]
            is_new = body.operation not in told
            if told[body.operation] >= REQUEST_TIMES or (is_new and len(told) >= REQUESTS_MAX):
                return
            told[body.operation] += 1
        self._outbox[receiver].append(body)

    def _may_ask(self) -> bool:
        return any(len(self._requests[each]) < REQUESTS_MAX for each in self.company.known)

    def tell(self, body: Body, audience: frozenset[int]) -> None:
        """Say it to all of these, with their next message."""
        for receiver in sorted(audience):
            self._put(receiver, body)

    def _told(self, body: Body, own: Message) -> Message | bytes | None:
        """`own` is the machine's. None for what no decoder would take, if that matters to it."""
        position = own.position
        if self.temper.is_lost and not self.chance.randrange(POSITION_ONE_IN):
            position = self.composer.made(Position)
        if position is not own.position:
            return self._written(Message(position, body))
        if body is own.body:
            return own
        if own is not self._beside:
            self._beside, self._messages = own, {}
        if id(body) not in self._messages:
            self._messages[id(body)] = body, self._written(Message(position, body))
        return self._messages[id(body)][1]

    def _written(self, message: Message) -> bytes | None:
        try:
            payload = encode_message(message)
            if not self.temper.is_rude:
                decoded(payload, self.composer.limits)
        except (PeerFault, DagError):
            return None
        return payload


class Puppet(Behaviour):
    """Its machine is honest code; what it says passes its mind."""

    def __init__(self) -> None:
        self.heard = Heard()
        self.mind: Mind | None = None

    def sends(self, voice: Voice, receiver: int, message: Message) -> Sequence[Message | bytes]:
        self.heard.message(message, is_others=False)
        if self.mind is None:
            self.mind = Mind(voice, self.heard)
        return self.mind.sends(receiver, message)

    def hears(self, message: Message) -> None:
        self.heard.message(message, is_others=True)
