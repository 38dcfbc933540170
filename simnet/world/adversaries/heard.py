"""What a liar has heard: values by what they are, to lie with what is nearly true.

Dataclasses of the wire are walked along their own type hints. A value is kept under the name of its
type where that says what it is (a BlockId, an OfferBody), else under that of its field (a view, a
codec). The newest of each are kept, and the first ones; what comes again counts once.
"""

from collections import defaultdict
from collections.abc import Hashable
from typing import Any, cast

from daa_consensus.bft.messages import Block
from daa_consensus.operations import Join
from daa_consensus.votes import Certificate, Signed, Statement
from daa_dag.ids import NodeId
from daa_node.agreement.messages import Message
from simnet.world.adversaries.shapes import (
    ENCODED,
    NAMES,
    each_of,
    fields_of,
    has_fields,
    kind_of,
    optional_of,
    shaped,
    tuple_of,
)

VALUES_KEPT = 32  # of each kind, the newest
OLDEST_KEPT = 16  # of each kind, the first that there were
ECHOED_MAX = 256  # names
MESSAGES_KEPT = 64  # looked into already
_PLAIN = (int, str, bytes)


class Heard:
    """Pools of values. Whatever a liar says itself it has heard as well."""

    def __init__(self) -> None:
        self._pools: defaultdict[str, dict[Hashable, Any]] = defaultdict(dict)
        self._oldest: defaultdict[str, dict[Hashable, Any]] = defaultdict(dict)
        self._messages: dict[int, Any] = {}  # kept alive, so that no other gets their address
        self._is_others = False
        self.echoed: dict[NodeId, None] = {}  # who is to join, as others repeat it

    def message(self, message: Message, is_others: bool) -> bool:
        """Take in a message; whether this very body is new."""
        self._is_others = is_others
        self._keep("Position", message.position, message.position)
        if id(message.body) in self._messages:
            return False
        self._messages[id(message.body)] = message.body
        if len(self._messages) > MESSAGES_KEPT:
            del self._messages[next(iter(self._messages))]
        self.note(type(message.body), "body", message.body)
        return True

    def of(self, kind: str) -> list[Any]:
        """Values of that kind, the newest last."""
        return list(self._pools.get(kind, {}).values())

    def things(self, of: type) -> list[Any]:
        """Those of this class, the newest last: a message and a hello may both be a Greeting."""
        return [thing for thing in self.of(of.__name__) if type(thing) is of]

    def oldest(self, kind: str) -> list[Any]:
        """The first values of that kind that there were."""
        return list(self._oldest.get(kind, {}).values())

    def note(self, hint: Any, place: str, value: Any) -> None:
        """A value of the type `hint` was heard in a field called `place`."""
        if value is None:
            return
        if has_fields(value.__class__):
            self._note_fields(value)
        elif (item := tuple_of(hint)) is not None:
            for each in value:
                self.note(item, place, each)
        elif places := each_of(hint):
            for inner, each in zip(places, value, strict=True):
                self.note(inner, place, each)
        elif (inner := optional_of(hint)) is not None:
            self.note(inner, place, value)
        elif isinstance(value, _PLAIN):
            self._keep(kind_of(hint, place), value, value)

    def _note_fields(self, thing: Any) -> None:
        self._keep(type(thing).__name__, _name(thing), thing)
        if isinstance(thing, Join) and self._is_others and len(self.echoed) < ECHOED_MAX:
            self.echoed[thing.subject] = None
        if type(thing) in NAMES:
            pool, name = NAMES[type(thing)]
            self._keep(pool, getattr(thing, name), getattr(thing, name))
        for place, hint in fields_of(thing.__class__):
            value = getattr(thing, place)
            encoding = ENCODED.get((type(thing), place))
            if isinstance(thing, Statement) and place == "value":
                self.note(*shaped(thing))
            elif encoding is not None:
                for payload in value if isinstance(value, tuple) else (value,):
                    found = encoding.opened(payload)
                    if found is not None:
                        self.note(type(found), place, found)
            else:
                self.note(hint, place, value)

    def _keep(self, kind: str, name: Hashable, value: Any) -> None:
        pool, oldest = self._pools[kind], self._oldest[kind]
        if len(oldest) < OLDEST_KEPT:
            oldest.setdefault(name, value)
        pool.pop(name, None)
        pool[name] = value
        if len(pool) > VALUES_KEPT:
            del pool[next(iter(pool))]


def _name(thing: Any) -> Hashable:
    """Equal for what is the same; statements hold lists, which have no hash."""
    match thing:
        case Statement():
            return thing.sign_bytes()
        case Signed():
            return thing.id
        case Certificate(statement, signatures):
            return statement.sign_bytes(), signatures
        case Block():
            return thing.id
    try:
        hash(thing)
    except TypeError:
        return repr(thing)
    return cast(Hashable, thing)
