"""Values of the wire's types, changed in one place or cloned: what a liar makes of what it knows.

varied(value)   the same but for one place: another leaf; a list that lost, doubled or got items
clones(value)   one of its leaves kept, everything else made up afresh, under fresh keys
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import is_dataclass, replace
from typing import Any, TypeVar, cast

from daa_consensus.bft.messages import OfferBody, offer_from_value
from daa_consensus.operations import Operation
from daa_consensus.votes import Certificate, Kind, Signed, Statement
from simnet.world.adversaries.grammar import FRESH_ONE_IN, TRIES_MAX, Composer, lawful
from simnet.world.adversaries.shapes import (
    ABOUT,
    ENCODED,
    fields_of,
    optional_of,
    plain,
    tuple_of,
)

NOT_VARIED = frozenset({"chain_id", "domain", "signature", "signatures", "signer"})
WAYS = ("drop", "thin", "repeat", "change", "fill", "add")  # to change a list

T = TypeVar("T")
Path = tuple[str, ...]


class Variations:
    """Of one liar. `focus` are fields that it changes before others, `ways` those for lists."""

    def __init__(
        self,
        composer: Composer,
        chance: random.Random,
        focus: frozenset[tuple[type, str]] = frozenset(),
        ways: Sequence[str] = WAYS,
    ) -> None:
        self._composer = composer
        self._pens = composer.pens
        self._chance = chance
        self._focus = focus
        self._ways = ways

    def varied(self, thing: T) -> T:
        """Like `thing` but for one place, and signed again."""
        found = thing
        for _ in range(TRIES_MAX):
            found = self._pens.sealed(self._varied(type(thing), "", thing))
            if _words(found) != _words(thing):
                break
        return found

    def _varied(self, hint: Any, place: str, value: Any) -> Any:
        chance = self._chance
        if (inner := optional_of(hint)) is not None:
            hint = inner
        if value is None:
            return self._composer.made(hint, place)
        if isinstance(value, tuple) and (item := tuple_of(hint)) is not None:
            return self._relisted(place, value, lambda: self._composer.made(item, place), item)
        match value:
            case Statement():
                return self._restated(value)
            case Certificate(statement):  # what others have signed, they have not signed so
                return self._pens.certified(self._restated(statement), {})
            case Signed(statement, signer) if signer not in self._pens.held:
                return self._pens.sign(self._restated(statement))
            case Operation(request) if not self._pens.owns(request):
                return self._composer.operation(type(request.action))
        if is_dataclass(value):
            of = cast(type, type(value))
            places = [each for each in fields_of(of) if each[0] not in NOT_VARIED]
            if not places:
                return value
            aimed = [each for each in places if (of, each[0]) in self._focus]
            name, inner = chance.choice(aimed or places)
            return replace(
                cast(Any, value), **{name: self._revised(of, name, inner, getattr(value, name))}
            )
        return self._composer.made(hint, place)

    def _revised(self, of: type, place: str, hint: Any, value: Any) -> Any:
        encoding = ENCODED.get((of, place))
        if encoding is None:
            return self._varied(hint, place, value)

        def fresh() -> bytes:
            return encoding.encode(self._composer.made(encoding.type, place))

        if isinstance(value, tuple):
            return self._relisted(place, value, fresh, None)
        opened = encoding.opened(value)
        return fresh() if opened is None else encoding.encode(self.varied(opened))

    def _relisted(
        self, place: str, items: tuple[Any, ...], fresh: Callable[[], Any], item: Any
    ) -> tuple[Any, ...]:
        """A list that is shorter, longer by one or up to its limit, doubled in part, or changed."""
        chance, found = self._chance, list(items)
        match chance.choice(self._ways):
            case "drop" if found:
                del found[chance.randrange(len(found))]
            case "thin" if found:
                found = [each for each in found if chance.randrange(2)]
            case "repeat" if found:
                return tuple(
                    chance.choices(found, k=min(2 * len(found), self._composer.most(place)))
                )
            case "change" if found and item is not None:
                at = chance.randrange(len(found))
                found[at] = self._varied(item, place, found[at])
            case "fill":
                found += [fresh() for _ in range(self._composer.most(place) - len(found))]
            case _:
                found.append(fresh())
        return self._composer.in_order(place, found)

    def _restated(self, statement: Statement) -> Statement:
        """Other statements for the same slot, mostly."""
        about = ABOUT[statement.kind]
        if about is None or not self._chance.randrange(FRESH_ONE_IN):
            view, height = self._composer.made(int, "view"), self._composer.made(int, "height")
            return lawful(replace(statement, view=view, height=height))
        value: Any = statement.value
        if statement.kind is Kind.OFFER:
            value = offer_from_value(value)
            changed = self._varied(OfferBody, "value", value)
            return replace(statement, value=plain(replace(changed, round=value.round)))
        if isinstance(value, list):
            value = tuple(value)
        return replace(statement, value=plain(self._varied(about, "value", value)))

    def clones(self, like: Operation, count: int) -> list[Operation]:
        """So many requests of strangers, with one leaf of `like` in each of them."""
        paths = list(_leaves(like.request))
        kept = self._chance.choice(paths)
        found = []
        for _ in range(count):
            fresh = self._composer.operation(type(like.request.action))
            found.append(self._pens.request(_grafted(fresh.request, like.request, kept)))
        return found


def _words(thing: Any) -> Any:
    """What is said, without the signature, which may be another one each time."""
    return thing.statement.sign_bytes() if isinstance(thing, Signed) else thing


def _leaves(thing: Any) -> list[Path]:
    """Paths to everything in a request that two of them may share: not whose they are."""
    found: list[Path] = []
    for place, _ in fields_of(thing.__class__):
        value, encoding = getattr(thing, place), ENCODED.get((type(thing), place))
        if encoding is not None:
            value = encoding.opened(value)
        if is_dataclass(value):
            found += [(place, *path) for path in _leaves(value)]
        elif place not in ("subject", "successor", "ml_dsa"):
            found.append((place,))
    return found


def _grafted(thing: Any, like: Any, path: Sequence[str]) -> Any:
    """The thing with the leaf at the end of the path as the other one has it."""
    place, *rest = path
    inner, leaf = getattr(thing, place), getattr(like, place)
    if rest:
        encoding = ENCODED.get((type(thing), place))
        if encoding is None:
            leaf = _grafted(inner, leaf, rest)
        else:
            grafted = _grafted(encoding.opened(inner), encoding.opened(leaf), rest)
            leaf = encoding.encode(grafted)
    return replace(thing, **{place: leaf})
