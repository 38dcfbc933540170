"""What a puppet does beside its machine's own messages: makes up, repeats and contradicts.

Each act is one turn. What comes of it goes to some of the others with their next messages.
"""

import random
from collections.abc import Callable, Mapping
from typing import Final

from daa_consensus.operations import Operation, encode_operation
from daa_consensus.votes import Kind
from daa_node.agreement.inbound import OPERATIONS_KEPT
from daa_node.agreement.messages import Asked, Body, Stated
from simnet.world.adversaries.behaviour import Pen
from simnet.world.adversaries.grammar import Composer
from simnet.world.adversaries.shapes import ACTIONS, BODIES, fields_of
from simnet.world.adversaries.temper import BURSTS, WORDS, Company, Temper
from simnet.world.adversaries.variations import Variations

ASKED_KEPT = 24  # requests of its own
# Different ones, told to one listener: by two turns more than an honest node remembers of all that
# it has read. What is more it would forget in the same way.
REQUESTS_MAX = OPERATIONS_KEPT + 2 * max(BURSTS)
# So often a listener is told one of them: as news, as what it knows, and when it may be settled.
REQUEST_TIMES = 3
CROWD_EARLY_ONE_IN = 8  # turns at which a crowd speaks that is not whole
BRINGING = tuple(of for of in ACTIONS if "keys" in dict(fields_of(of)))  # requests with fresh keys


class Acts:
    """Of one mind."""

    def __init__(
        self,
        chance: random.Random,
        temper: Temper,
        company: Company,
        composer: Composer,
        variations: Variations,
        tell: Callable[[Body, frozenset[int]], None],
        may_ask: Callable[[], bool],
    ) -> None:
        """`may_ask`: whether somebody has not been told so many requests."""
        self._chance = chance
        self.temper = temper
        self._company = company
        self._composer = composer
        self._pens = composer.pens
        self._variations = variations
        self._tell = tell
        self._may_ask = may_ask
        self._bringing = chance.choice(BRINGING)  # what its crowd asks for
        self.asked: list[bytes] = []  # the newest of its own requests

    def make_up(self) -> None:
        """Statements of the kinds that it is busy with, to whoever."""
        audience = self._company.audience()
        for _ in range(self._chance.randint(1, self.temper.burst)):
            body = self._composer.made(self._chance.choice(self.temper.bodies))
            self._tell(body, audience)

    def repeat(self) -> None:
        """Something that was heard, or something near it."""
        known = [body for of in self.temper.bodies for body in self._composer.heard.things(of)]
        if known:
            body = self._chance.choice(known)
            if self._chance.randrange(2):
                body = self._variations.varied(body)
            self._tell(body, self._company.audience())

    def clone(self) -> None:
        """A request that was heard, or an own one, under so many keys; it may approve of all."""
        if not self._may_ask():
            return
        known = self._composer.heard.of("Operation")
        like = self._chance.choice(known) if known and self._chance.randrange(2) else None
        like = like or self._composer.operation(self._chance.choice(self.temper.actions))
        clones = self._variations.clones(like, self._chance.randint(1, self.temper.burst))
        self._ask([like, *clones])

    def _ask(self, operations: list[Operation]) -> None:
        audience = self._company.audience()
        for operation in operations:
            self._tell(Asked(operation), audience)
            self.asked = [*self.asked, encode_operation(operation)][-ASKED_KEPT:]
            if self.temper.endorses:
                self._tell(Asked(self._pens.approval(operation)), audience)

    def endorse(self) -> None:
        """Agree to what was asked for."""
        if not self._may_ask():
            return
        audience = self._company.audience()
        for operation in self._composer.heard.of("Operation")[-self.temper.burst :]:
            self._tell(Asked(self._pens.approval(operation)), audience)

    def contradict(self) -> None:
        """Two statements for a slot under each of its keys that others speak of."""
        pens, known = self._pens, self._known()
        some = self._chance.sample(known, min(len(known), self.temper.burst))
        self._contradict(self._chance.choice(WORDS), [pens.own, *some])

    def _known(self) -> list[Pen]:
        """Keys of its own that others speak of."""
        echoed = self._composer.heard.echoed
        return [pen for name, pen in self._pens.held.items() if name in echoed]

    def _contradict(self, kind: Kind, pens: list[Pen]) -> None:
        audience = self._company.audience()
        word = self._composer.word(kind)
        other = self._variations.varied(word)
        for pen in pens:
            with self._pens.writing(pen):
                self._tell(Stated(self._pens.sign(word.statement)), audience)
                self._tell(Stated(self._pens.sign(other.statement)), audience)

    def crowd(self) -> None:
        """Bring fresh keys in until there are enough; then all say one thing, and another one."""
        known = self._known()
        if len(known) < self.temper.burst and self._may_ask():
            room = self.temper.burst - len(known)
            self._ask([self._composer.operation(self._bringing) for _ in range(room)])
        if len(known) >= self.temper.burst or not self._chance.randrange(CROWD_EARLY_ONE_IN):
            self._contradict(self._chance.choice(WORDS), known)

    def replay(self) -> None:
        """Something of long ago, or all of it."""
        old = [body for of in BODIES for body in self._composer.heard.oldest(of.__name__)]
        audience = self._company.audience()
        for body in self._chance.sample(old, min(len(old), self.temper.burst)):
            self._tell(body, audience)


BY_NAME: Final[Mapping[str, Callable[[Acts], None]]] = {
    "make up": Acts.make_up,
    "repeat": Acts.repeat,
    "clone": Acts.clone,
    "endorse": Acts.endorse,
    "contradict": Acts.contradict,
    "crowd": Acts.crowd,
    "replay": Acts.replay,
}
