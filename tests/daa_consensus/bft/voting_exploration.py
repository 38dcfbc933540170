"""Walks through every state of voting_model; says of each whether it is safe and no dead end.

    Walk        every order of some votes, and of Execs between them, from one state
    by_slot     all votes of the first slot, then all of the next, ...: the same end states

Why it is enough to go slot by slot: nothing below the record's slot is signed, a record says
nothing of later slots, and certificates of later slots matter to no vote. So the votes of any run
may be sorted by slot, each node's Execs kept between its own votes, and all stay allowed. What a
slot leaves behind is then its certificates and what was executed. A test compares the two.

States are equal up to the order of the honest nodes. Between slots those are left out that another
one leads to by Execs alone: the next walk makes them anyway.

A dead end is a view without a certificate that a node cannot leave, or a state from which the
honest, with the traitor silent from now on and everything known to all, cannot within a few views
of their own close the round or open the next. What the traitor withholds needs no states of its
own: had the honest kept silent instead, the same certificates would be missing.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from daa_consensus.bft.safety import Record
from daa_consensus.votes import Kind
from tests.daa_consensus.bft.voting_model import (
    HONEST,
    Broken,
    Honesty,
    Local,
    Node,
    Rules,
    Safety,
    State,
    executed_by,
    quorum,
)
from tests.daa_consensus.bft.voting_universe import NONE, ROOT, Slot, Universe, Word

VIEWS_TO_PROGRESS = 2  # finish what is under way, then close the round or open the next

Triple = tuple[int, int, int]  # numbers of local states, sorted


class Explorer:
    """`states` counts the states reached so far."""

    def __init__(self, rules: Rules, universe: Universe) -> None:
        self.rules = rules
        self.universe = universe
        self.honesty = Honesty(rules, universe)
        self.safety = Safety(universe)
        self.states = 0
        self._alive: dict[tuple[object, ...], bool] = {}

    def every_order(self, start: State, words: Sequence[Word]) -> set[State]:
        """Every state that these votes, and Execs between them, can lead to. Raises Broken."""
        walk = Walk(self, start, words, None)
        found = walk.run(Record(0, 0))
        self.states += walk.states
        return found

    def by_slot(
        self,
        start: State,
        slots: Sequence[Slot],
        words_of: Callable[[int, Slot], list[Word]] | None = None,
    ) -> set[State]:
        """The same, a slot after the other. Raises Broken, for dead ends too.

        `words_of` tells from certificates and slot what can be voted for: `words` by default.
        """
        reached, record = {start}, Record(0, 0)
        for slot in slots:
            before, reached = self._earliest(reached), set()
            for state in sorted(before):
                words = (words_of or self.words)(state.certified, slot)
                found = self._walk_slot(state, record, slot, words)
                reached |= found
            record = Record(*slot, nullified=True)
        return reached

    def _walk_slot(self, start: State, record: Record, slot: Slot, words: list[Word]) -> set[State]:
        if not any(self.honesty.stands_in(tip, slot) for tip in self.honesty.tips(start.certified)):
            return {start}  # the epoch has not begun
        walk = Walk(self, start, words, self.universe.nullify(slot))
        found = walk.run(record)
        self.states += walk.states
        for state in found:
            self._check_progress(state, slot)
        return found

    def words(self, certified: int, slot: Slot) -> list[Word]:
        """What the slot may see: blocks on what is notarized, or on what the first slot proposed.

        Left out is what no honest node would notarize whatever it has executed.
        """
        universe = self.universe
        parents = {ROOT, *universe.named(Kind.NOTARIZE, certified)}
        parents |= set(universe.children(ROOT, (0, 1)))
        found = [universe.nullify(slot)]
        for parent in sorted(parents):
            if universe.slot(parent) < slot:
                for block in universe.children(parent, slot):
                    word = universe.word(Kind.NOTARIZE, block)
                    if self._thinkable(word, certified):
                        found += [word, universe.word(Kind.FINALIZE, block)]
        return found

    def _thinkable(self, word: Word, certified: int) -> bool:
        blank, known = Record(*word.vote.slot), self.honesty
        return any(
            self.rules.may_vote(blank, known.seen(certified, tip, Node()), word.vote).allowed
            for tip in known.tips(certified)
            if known.stands_in(tip, word.vote.slot)
        )

    def _earliest(self, states: set[State]) -> set[State]:
        """Without those that another one leads to by Execs and by hearing of them alone."""
        late = set()
        for state in states:
            executed = executed_by(state.nodes, self.rules.honest_quorum)
            for index, node in enumerate(state.nodes):
                tips = self.honesty.tips(state.certified)
                for moved in self.honesty.moves(node, state.certified, executed, tips):
                    nodes = [*state.nodes[:index], moved, *state.nodes[index + 1 :]]
                    late.add(State(state.certified, tuple(sorted(nodes))))
        return states - late

    def _check_progress(self, state: State, slot: Slot) -> None:
        """If all stand behind the slot, know everything and the traitor is silent: can they go on?

        One that is in an epoch or view before it gets there by what the others have to offer.
        """
        tip = self.honesty.tips(state.certified)[0]
        epoch, view = self.honesty.epoch(tip), self.universe.blocks[tip].view + 1
        if epoch == slot[0]:
            view = slot[1] + 1
        head = self._head(state.certified, tip, view)
        if head == NONE:
            return  # a view on the way is not over
        key = tip, head, view, state.nodes
        if key not in self._alive:
            self._alive[key] = self._progresses(state, tip, view)
        if not self._alive[key]:
            raise Broken("a dead end: the honest alone cannot close the round or open the next")

    def _head(self, certified: int, tip: int, view: int) -> int:
        """What the leader of the view builds on."""
        notarized, nullified = self.honesty.known(certified, tip)
        for below in range(view - 1, self.universe.blocks[tip].view - 1, -1):
            if below in notarized:
                return self.universe.number[notarized[below]]
            if below not in nullified:
                break
        return NONE

    def _progresses(self, start: State, tip: int, view: int) -> bool:
        """Whether some choices of honest leaders end in a newly closed round, or a new set."""
        before, states = self._standing(tip), [start]
        for at in range(view, view + VIEWS_TO_PROGRESS):
            states = [after for state in states for after in self._agreed(state, at)]
            if any(self._standing(self.honesty.tips(s.certified)[0]) != before for s in states):
                return True
        return False

    def _standing(self, tip: int) -> tuple[int, bool]:
        return self.universe.blocks[tip].height, self.universe.is_open(tip)

    def _agreed(self, state: State, view: int) -> Iterable[State]:
        """What all three can make final in a view with an honest leader."""
        tip = self.honesty.tips(state.certified)[0]
        head = self._head(state.certified, tip, view)
        slot = self.honesty.epoch(tip), view
        blank = Record(*slot)
        for nodes in (state.nodes, self._all_executed(state, tip)):
            for block in self.universe.children(head, slot):
                certified = state.certified
                for kind in (Kind.NOTARIZE, Kind.FINALIZE):
                    word = self.universe.word(kind, block)
                    may = (
                        self.honesty.may_sign_at(tip, blank, node, word, certified)
                        for node in nodes
                    )
                    if all(may):
                        certified |= word.bit
                if self.universe.word(Kind.FINALIZE, block).bit & certified:
                    yield State(certified, nodes)

    def _all_executed(self, state: State, tip: int) -> tuple[Node, ...]:
        """Each node has executed, if it may, and heard of every quorum that needs no traitor."""
        nodes = list(state.nodes)
        heard = {node.holds for node in nodes if node.holds != NONE}
        for _ in range(2):
            heard |= set(executed_by(nodes, HONEST))
            for index, node in enumerate(nodes):
                for moved in self.honesty.moves(node, state.certified, tuple(heard), (tip,)):
                    nodes[index] = moved
        return tuple(sorted(nodes))


class Outlook(NamedTuple):
    """What follows from certificates and Execs, and, by local state, what each node may do next."""

    state: State
    executed: tuple[int, ...]
    moves: dict[int, list[int]]
    stuck: set[int]  # local states that may not leave the view, of those in `moves`


class Walk:
    """One walk through all orders of some votes. Local states are numbered as they appear.

    With `leave`, the Nullify of the only slot, every node must be able to leave it.
    """

    def __init__(
        self, explorer: Explorer, start: State, words: Sequence[Word], leave: Word | None
    ) -> None:
        self._start = start
        self._leave = leave
        ends = (w.bit for w in words if w.vote.kind in (Kind.NOTARIZE, Kind.NULLIFY))
        self._view_ends = sum(ends)
        self._words = words
        self._honesty, self._safety = explorer.honesty, explorer.safety
        self._quorum = explorer.rules.honest_quorum
        self.locals: list[Local] = []
        self._sent: list[int] = []  # of each of them, and the number of its node
        self._node_of: list[int] = []
        self._numbers: dict[Local, int] = {}
        self._nodes: dict[Node, int] = {}
        self._outlooks: dict[tuple[int, int, int, int], Outlook] = {}
        self._moves: dict[tuple[int, tuple[int, ...]], tuple[dict[int, list[int]], set[int]]] = {}
        self.states = 0

    def run(self, record: Record) -> set[State]:
        one, two, three = (self._number(Local(record, 0, n)) for n in self._start.nodes)
        first = ordered(one, two, three)
        reached, frontier = {first}, [first]
        while frontier:
            one, two, three = frontier.pop()
            outlook = self._outlook(one, two, three)
            for moving, other, another in ((one, two, three), (two, one, three), (three, one, two)):
                for moved in self._next(moving, outlook):
                    triple = ordered(moved, other, another)
                    if triple not in reached:
                        reached.add(triple)
                        frontier.append(triple)
            if self._leave is not None and not outlook.stuck.isdisjoint((one, two, three)):
                raise Broken("a dead end: a view without a certificate that a node cannot leave")
        self.states = len(reached)
        return {outlook.state for outlook in self._outlooks.values()}

    def _number(self, local: Local) -> int:
        if local not in self._numbers:
            self._numbers[local] = len(self.locals)
            self.locals.append(local)
            self._sent.append(local.sent)
            self._node_of.append(self._nodes.setdefault(local.node, len(self._nodes)))
        return self._numbers[local]

    def _outlook(self, one: int, two: int, three: int) -> Outlook:
        sent, node_of = self._sent, self._node_of
        certified = quorum(sent[one], sent[two], sent[three], self._quorum)
        certified |= self._start.certified
        # by numbers: nodes are tuples of tuples, and there are a million states
        key = certified, node_of[one], node_of[two], node_of[three]
        known = self._outlooks.get(key)
        if known is None:
            nodes = tuple(sorted(self.locals[number].node for number in (one, two, three)))
            executed = executed_by(nodes, self._quorum)
            self._safety.check(certified, executed)
            moves = self._moves.setdefault((certified, executed), ({}, set()))
            known = Outlook(State(certified, nodes), executed, *moves)
            self._outlooks[key] = known
        return known

    def _next(self, number: int, outlook: Outlook) -> list[int]:
        known = outlook.moves.get(number)
        if known is None:
            known = outlook.moves[number] = self._find_next(number, outlook)
        return known

    def _find_next(self, number: int, outlook: Outlook) -> list[int]:
        local, certified, honesty = self.locals[number], outlook.state.certified, self._honesty
        unsaid = [word for word in self._words if not word.bit & local.sent]
        allowed = honesty.signable(local.record, local.node, unsaid, certified)
        leaving = self._leave is None or self._leave in allowed or self._leave.bit & local.sent
        if not leaving and not certified & self._view_ends:
            outlook.stuck.add(number)
        tips = honesty.tips(certified)
        moved = honesty.moves(local.node, certified, outlook.executed, tips)
        made = [honesty.after(local, word) for word in allowed]
        made += [local._replace(node=node) for node in moved]
        return [self._number(after) for after in made]


def ordered(one: int, two: int, three: int) -> Triple:
    if one > two:
        one, two = two, one
    if two > three:
        two, three = three, two
        if one > two:
            one, two = two, one
    return one, two, three
