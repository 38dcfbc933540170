"""What a puppet does beside its machine's own messages: makes up, repeats and contradicts.

Each act is one turn. What comes of it goes to some of the others with their next messages.
"""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
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


@dataclass(slots=True)
class Acts:
    """Of one mind. `may_ask`: whether somebody has not been told so many requests."""

    chance: random.Random
    temper: Temper
    company: Company
    composer: Composer
    variations: Variations
    tell: Callable[[Body, frozenset[int]], None]
    may_ask: Callable[[], bool]
    asked: list[bytes] = field(default_factory=list)  # the newest of its own requests
    bringing: type = field(init=False)  # what its crowd asks for

    def __post_init__(self) -> None:
        self.bringing = self.chance.choice(BRINGING)

    def make_up(self) -> None:
        """Statements of the kinds that it is busy with, to whoever."""
        audience = self.company.audience()
        for _ in range(self.chance.randint(1, self.temper.burst)):
            body = self.composer.made(self.chance.choice(self.temper.bodies))
            self.tell(body, audience)

    def repeat(self) -> None:
        """Something that was heard, or something near it."""
        known = [body for of in self.temper.bodies for body in self.composer.heard.things(of)]
        if known:
            body = self.chance.choice(known)
            if self.chance.randrange(2):
                body = self.variations.varied(body)
            self.tell(body, self.company.audience())

    def clone(self) -> None:
        """A request that was heard, or an own one, under so many keys; it may approve of all."""
        if not self.may_ask():
            return
        known = self.composer.heard.of("Operation")
        like = self.chance.choice(known) if known and self.chance.randrange(2) else None
        like = like or self.composer.operation(self.chance.choice(self.temper.actions))
        clones = self.variations.clones(like, self.chance.randint(1, self.temper.burst))
        self._ask([like, *clones])

    def _ask(self, operations: list[Operation]) -> None:
        audience = self.company.audience()
        for operation in operations:
            self.tell(Asked(operation), audience)
            self.asked = [*self.asked, encode_operation(operation)][-ASKED_KEPT:]
            if self.temper.endorses:
                self.tell(Asked(self.composer.pens.approval(operation)), audience)

    def endorse(self) -> None:
        """Agree to what was asked for."""
        if not self.may_ask():
            return
        audience = self.company.audience()
        for operation in self.composer.heard.of("Operation")[-self.temper.burst :]:
            self.tell(Asked(self.composer.pens.approval(operation)), audience)

    def contradict(self) -> None:
        """Two statements for a slot under each of its keys that others speak of."""
        pens, known = self.composer.pens, self._known()
        some = self.chance.sample(known, min(len(known), self.temper.burst))
        self._contradict(self.chance.choice(WORDS), [pens.own, *some])

    def _known(self) -> list[Pen]:
        """Keys of its own that others speak of."""
        echoed = self.composer.heard.echoed
        return [pen for name, pen in self.composer.pens.held.items() if name in echoed]

    def _contradict(self, kind: Kind, pens: list[Pen]) -> None:
        audience = self.company.audience()
        word = self.composer.word(kind)
        other = self.variations.varied(word)
        for pen in pens:
            with self.composer.pens.writing(pen):
                self.tell(Stated(self.composer.pens.sign(word.statement)), audience)
                self.tell(Stated(self.composer.pens.sign(other.statement)), audience)

    def crowd(self) -> None:
        """Bring fresh keys in until there are enough; then all say one thing, and another one."""
        known = self._known()
        if len(known) < self.temper.burst and self.may_ask():
            room = self.temper.burst - len(known)
            self._ask([self.composer.operation(self.bringing) for _ in range(room)])
        if len(known) >= self.temper.burst or not self.chance.randrange(CROWD_EARLY_ONE_IN):
            self._contradict(self.chance.choice(WORDS), known)

    def replay(self) -> None:
        """Something of long ago, or all of it."""
        old = [body for of in BODIES for body in self.composer.heard.oldest(of.__name__)]
        audience = self.company.audience()
        for body in self.chance.sample(old, min(len(old), self.temper.burst)):
            self.tell(body, audience)


BY_NAME: Final[Mapping[str, Callable[[Acts], None]]] = {
    "make up": Acts.make_up,
    "repeat": Acts.repeat,
    "clone": Acts.clone,
    "endorse": Acts.endorse,
    "contradict": Acts.contradict,
    "crowd": Acts.crowd,
    "replay": Acts.replay,
}
