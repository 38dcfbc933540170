"""Everything that keys can sign: values of the wire's types, made up.

A Composer walks the dataclasses of the wire (simnet/world/adversaries/shapes.py), so what a message
may say is never written down twice. Leaves come out of what was heard, of boundaries, or of
nowhere. What it makes has the right types; whether decoders take it, and what honest nodes think of
it, is theirs to say.
"""

from collections.abc import Sequence
from dataclasses import is_dataclass, replace
from enum import Enum
from typing import Any, cast, get_args

from daa_consensus.bft.evidence import Evidence, conflict
from daa_consensus.bft.limits import SNAPSHOTS_MAX, Limits
from daa_consensus.bft.messages import OfferBody
from daa_consensus.bft.values import INT_MAX
from daa_consensus.committee import Domain
from daa_consensus.errors import BadMessage
from daa_consensus.membership import EXPIRY_EPOCHS_MAX
from daa_consensus.operations import (
    Action,
    Join,
    Operation,
    Request,
    decode_operation,
    encode_operation,
)
from daa_consensus.votes import Certificate, Kind, Signed, Statement
from daa_dag.errors import DagError
from daa_dag.ids import DIGEST_BYTES
from daa_node.agreement.messages import Proposed
from daa_node.identity.validators import MemberKeys
from daa_node.seams import PeerId
from simnet.world.adversaries.behaviour import Pen
from simnet.world.adversaries.heard import Heard
from simnet.world.adversaries.pens import Pens, fitting
from simnet.world.adversaries.shapes import (
    ABOUT,
    ENCODED,
    HEIGHTLESS,
    SLOTLESS,
    SORTED,
    each_of,
    fields_of,
    kind_of,
    optional_of,
    plain,
    tuple_of,
)

NEAR = (0, 0, 0, 0, 1, 1, -1, 2)  # what is added to a number that was heard
EXPIRIES = (0, 1, 2, EXPIRY_EPOCHS_MAX // 2, EXPIRY_EPOCHS_MAX, EXPIRY_EPOCHS_MAX + 1)
HONEST_EXPIRIES = (EXPIRY_EPOCHS_MAX // 2, EXPIRY_EPOCHS_MAX)
EDGES = (0, 1, INT_MAX)
SMALL = (1, 1, 2, 3)  # where nobody has said a number yet
EDGE_ONE_IN = 12  # numbers
FRESH_ONE_IN = 6  # values that might have been heard ones
FEW = 3  # items of an ordinary list
TRIES_MAX = 8  # to make what a decoder takes
WORDS = ("mean", "trimmed_mean", "int8", "int4", "top_k", "cloud", "updates", "deltas")


class Composer:
    """Of one liar."""

    def __init__(self, heard: Heard, pens: Pens, limits: Limits) -> None:
        self.heard = heard
        self.pens = pens
        self.limits = limits
        self.actions: Sequence[Any] = get_args(Action)
        self.kinds: Sequence[Kind] = tuple(Kind)
        self.is_odd = True  # else names and numbers are such as an honest node might give
        self.now: dict[str, int] = {}  # view, height and round, for words in order
        self._chance = pens.voice.chance

    def made(self, hint: Any, place: str = "") -> Any:
        """Some value of that type, as a field of that name might have."""
        chance = self._chance
        if (item := tuple_of(hint)) is not None:
            return self.in_order(place, [self.made(item, place) for _ in range(self._count())])
        if places := each_of(hint):
            return tuple(self.made(each, place) for each in places)
        if (inner := optional_of(hint)) is not None:
            return self.made(inner, place) if chance.randrange(2) else None
        if get_args(hint):
            return self.made(chance.choice(get_args(hint)), place)
        if isinstance(hint, type) and issubclass(hint, Enum):
            return chance.choice(list(hint))
        if is_dataclass(hint):
            return self._thing(cast(type, hint))
        return self._leaf(hint, place)

    def _count(self) -> int:
        """Of a list's items."""
        return self._chance.choice((0, 1, 1, 2, FEW))

    def _leaf(self, hint: Any, place: str) -> Any:
        chance, kind = self._chance, kind_of(hint, place)
        underlying = getattr(hint, "__supertype__", hint)
        known = self.heard.of(kind)
        if underlying is bool:
            return bool(chance.randrange(2))
        if place == "expires_epoch":
            expiries = EXPIRIES if self.is_odd else HONEST_EXPIRIES
            return self.pens.voice.domain.epoch + chance.choice(expiries)
        if underlying is int:
            if not self.is_odd and place in self.now:
                return self.now[place]
            if self.is_odd and not chance.randrange(EDGE_ONE_IN):
                return chance.choice(EDGES)
            if not known:
                return chance.choice(SMALL)
            return min(max(chance.choice(known[-4:]) + chance.choice(NEAR), 0), INT_MAX)
        if known and chance.randrange(FRESH_ONE_IN):
            return chance.choice(known)
        if kind == "PeerId":
            return self.pens.stranger().member.peer_id
        if underlying is str:
            return chance.choice(WORDS)
        return chance.randbytes(DIGEST_BYTES)

    def _thing(self, of: type) -> Any:
        if of is Signed:
            return self.word(self._chance.choice(self.kinds))
        if of is Operation:
            return self.operation(self._chance.choice(self.actions))
        if of is MemberKeys:
            return self._keys(self.pens.stranger())
        if of is Evidence:
            return self._evidence()
        if of is Statement:
            return self.word(self._chance.choice(self.kinds)).statement
        if of is Certificate:
            return self._certificate()
        if of is Domain and self._chance.randrange(FRESH_ONE_IN):
            return self.pens.voice.domain
        known = self.heard.things(of)
        if known and not self._chance.randrange(FEW):
            return self._chance.choice(known)
        values = {place: self._field(of, place, hint) for place, hint in fields_of(of)}
        made = fitting(of(**values))
        return self.pens.sealed(made) if of is Proposed else made

    def _field(self, of: type, place: str, hint: Any) -> Any:
        encoding = ENCODED.get((of, place))
        if encoding is None:
            return self.made(hint, place)
        if tuple_of(hint) is None:
            return encoding.encode(self.made(encoding.type, place))
        return tuple(encoding.encode(self.made(encoding.type, place)) for _ in range(self._count()))

    def _keys(self, pen: Pen) -> MemberKeys:
        """The key itself must be ours; all that comes along may be anybody's."""
        keys = pen.member
        if self.is_odd and not self._chance.randrange(FEW):
            keys = replace(keys, peer_id=self.made(PeerId, "peer_id"))
        return keys

    def _certificate(self) -> Certificate:
        """Of all who said the same, ourselves among them; seldom a quorum."""
        known, words = self.heard.of("Certificate"), self.heard.of("Signed")
        if known and self._chance.randrange(2) or not words:
            like = (
                self._chance.choice(known).statement if known else self.word(Kind.NULLIFY).statement
            )
        else:
            like = self._chance.choice(words).statement
        pairs = {word.signer: word.signature for word in words if word.statement == like}
        return self.pens.certified(like, pairs)

    def _evidence(self) -> Evidence:
        """What was heard, or against one of its own keys."""
        known = self.heard.of("Evidence")
        if known and self._chance.randrange(2):
            return cast(Evidence, self._chance.choice(known))
        with self.pens.writing(self.pens.any()):
            first = self.word(Kind.OFFER)
            offer = cast(OfferBody, self.made(OfferBody))
            other = replace(offer, round=first.statement.height)
            second = self.pens.sign(replace(first.statement, value=plain(other)))
        return conflict(first, second) or Evidence("none", first.signer, (first, second))

    def word(self, kind: Kind) -> Signed:
        """A statement of that kind, of the writer's, somewhere near where everybody is."""
        statement = Statement(
            self.pens.voice.domain,
            kind,
            self.made(int, "view"),
            self.made(int, "height"),
            plain(self.made(ABOUT[kind], "value") if ABOUT[kind] is not None else None),
        )
        return self.pens.sign(lawful(statement))

    def operation(self, action: type) -> Operation:
        """A request of that kind, in the writer's name, or in a stranger's where it brings one."""
        found = None
        for _ in range(TRIES_MAX):
            drawn, expires = self._action(action), self.made(int, "expires_epoch")
            found = self.pens.request(Request(drawn, expires))
            if _is_read(found):
                break
        assert found is not None
        return found

    def _action(self, of: type) -> Any:
        newcomer = self.pens.stranger()
        values: dict[str, Any] = {}
        for place, hint in fields_of(of):
            if place == "keys":
                values[place] = self._keys(newcomer).encode()
            elif place in ("subject", "successor"):
                brings = of is Join or place == "successor"
                values[place] = newcomer.node_id if brings else self.pens.writer.node_id
            else:
                values[place] = self.made(hint, place)
        return of(**values)

    def most(self, place: str) -> int:
        if place == "snapshot_roots":
            return SNAPSHOTS_MAX
        most = getattr(self.limits, f"{place}_max", self.limits.validators)
        return cast(int, most)

    def in_order(self, place: str, items: list[Any]) -> tuple[Any, ...]:
        if place == "snapshot_roots":  # an Offer with more is none, and nothing is made of it
            return tuple(items[: self.most(place)])
        if place not in SORTED:
            return tuple(items)
        by_key = {_order(each): each for each in items}
        return tuple(by_key[key] for key in sorted(by_key))


def lawful(statement: Statement) -> Statement:
    """In a view where its kind has one, at a height where it has one."""
    view = 0 if statement.kind in SLOTLESS else max(1, statement.view)
    height = 0 if statement.kind in HEIGHTLESS else statement.height
    return replace(statement, view=view, height=height)


def _order(item: Any) -> Any:
    if isinstance(item, OfferBody):
        return item.author
    return item[0] if isinstance(item, tuple) else item


def _is_read(operation: Operation) -> bool:
    """Whether a decoder takes it."""
    try:
        decode_operation(encode_operation(operation))
    except (BadMessage, DagError):
        return False
    return True
