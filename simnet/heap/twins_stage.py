"""A script on the heap: real agreement code, whose letters pass as the scenes say, and an audit.

The real schedule of leaders is a shuffle in which everybody leads once a cycle, so it could never
give a twin two views in a row but at a seam. Here a committee pins the leaders of the scenes'
views; all other views, and all later epochs, have the real schedule.

The audit hears every word and certificate on every wire, as any observer may who is given them, and
names whom they convict. It never convicts an honest node, and after a fork it names f+1.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from daa_consensus.bft.evidence import conflict
from daa_consensus.committee import Committee, Domain, Validator
from daa_consensus.votes import Certificate, Kind, Signed
from daa_dag.ids import NodeId
from daa_node.agreement.letters import Certified, Letter, Proposed, Said, SentBlock
from simnet.determinism import Trace
from simnet.heap import consensus
from simnet.heap.consensus_boot import Make
from simnet.heap.consensus_host import Host
from simnet.heap.twins import Scene, Script
from simnet.invariants import ONE_CHAIN, ONE_ENDING, ONE_VERTEX
from simnet.links import MS
from simnet.outcome import Outcome
from simnet.scenario import AdversaryConfig, ChecksConfig, NodesConfig, Scenario, WorkConfig

DELTA_MS = 250
PATIENCE_DELTAS = 48  # beyond the scenes' own times: what several given up views may take
FORKS = (ONE_VERTEX, ONE_CHAIN, ONE_ENDING)
WORDS_MAX = 200_000  # that one audit remembers


@dataclass(frozen=True)
class PinnedCommittee(Committee):
    """Leads the named views by the named validators."""

    pinned: tuple[tuple[int, NodeId], ...] = ()

    def leader(self, domain: Domain, view: int) -> NodeId:
        found = dict(self.pinned).get(view)
        return super().leader(domain, view) if found is None else found


VIEWS_BEFORE_MAX = 64  # of the epochs before the first scene


@dataclass(slots=True)
class Audit:
    """Every word that was on a wire, by signer and slot; and whom two of them convict."""

    culprits: set[NodeId] = field(default_factory=set)
    _said: dict[tuple[NodeId, int, int, int], list[Signed]] = field(default_factory=dict)
    _words: int = 0

    def hear(self, letter: Letter) -> None:
        match letter.body:
            case Said(signed):
                self._word(signed)
            case Proposed(signed, _, certificate):
                self._word(signed)
                if certificate is not None:
                    self._certificate(certificate)
            case Certified(certificate, _):
                self._certificate(certificate)
            case _:
                pass

    def _certificate(self, certificate: Certificate) -> None:
        for signer, signature in certificate.signatures:
            self._word(Signed(certificate.statement, signer, signature))

    def _word(self, signed: Signed) -> None:
        statement = signed.statement
        key = (
            signed.signer,
            statement.domain.epoch,
            statement.view,
            0 if statement.view else statement.height,
        )
        said = self._said.setdefault(key, [])
        if any(other.statement == statement for other in said):
            return
        self._words += 1
        assert self._words <= WORDS_MAX, "a script is short"
        if any(conflict(signed, other) is not None for other in said):
            self.culprits.add(signed.signer)
        said.append(signed)


class Play:
    """The stage of one script; see simnet/heap/consensus.py."""

    def __init__(self, script: Script, delta_ns: int) -> None:
        self._script = script
        self._delta_ns = delta_ns
        self._scenes: dict[int, Scene] = dict(enumerate(script.scenes, 1))
        self._ends_ns: dict[int, int] = {}  # of scenes that have begun
        self._before_view = None if script.from_epoch else 0  # the last view without a scene
        patience = PATIENCE_DELTAS + sum(scene.deltas for scene in script.scenes)
        self._limit_ns = patience * delta_ns
        self.audit = Audit()
        self.names: list[NodeId] = []

    def committee(self, names: Sequence[NodeId], validators: tuple[Validator, ...]) -> Committee:
        self.names = list(names)
        pinned = tuple(
            (view, self.names[scene.leader])
            for view, scene in self._scenes.items()
            if scene.leader is not None
        )
        if self._script.from_epoch:  # led by a twin, it would be convicted before the first scene
            honest = next(n for n in range(len(validators)) if n not in self._script.twins)
            pinned = tuple((view, self.names[honest]) for view in range(1, VIEWS_BEFORE_MAX))
        return PinnedCommittee(validators, pinned)

    def passes(self, now_ns: int, sender: Host, receiver: Host, letter: Letter) -> bool:
        self.audit.hear(letter)
        epoch, view, kind = about(letter)
        if epoch < self._script.from_epoch or self.is_over(now_ns):
            return True
        if self._before_view is None:
            self._before_view = view - 1
        number = view - self._before_view
        scene = self._scenes.get(number)
        if scene is None:
            return True
        ends_ns = self._ends_ns.setdefault(number, now_ns + scene.deltas * self._delta_ns)
        if now_ns >= ends_ns:
            return True
        return scene.hears((sender.node, sender.body), (receiver.node, receiver.body), kind)

    def is_over(self, now_ns: int) -> bool:
        if now_ns >= self._limit_ns:
            return True
        begun = len(self._ends_ns) == len(self._scenes)
        return begun and now_ns >= max(self._ends_ns.values(), default=0)


def about(letter: Letter) -> tuple[int, int, Kind | None]:
    """The epoch and view that a letter speaks of, and its kind if it is a vote or a certificate."""
    match letter.body:
        case Said(spoken) | Proposed(spoken, _, _) | Certified(spoken, _) if (
            spoken.statement.view > 0
        ):
            words = spoken.statement
            return words.domain.epoch, words.view, words.kind
        case SentBlock(block, _):
            return block.epoch, block.view, None
        case _:
            return letter.position.epoch, letter.position.view, None


@dataclass(frozen=True, slots=True)
class Played:
    """What came of a script. Nodes are numbers."""

    script: Script
    outcome: Outcome
    culprits: frozenset[int]

    @property
    def broken(self) -> str | None:
        """The invariant that did not hold."""
        found = [i for i in self.outcome.invariants if not i.ok]
        return f"{found[0].name}: {found[0].detail}" if found else None

    @property
    def forked(self) -> bool:
        return any(not i.ok and i.name in FORKS for i in self.outcome.invariants)

    @property
    def failure(self) -> str | None:
        """Why the script failed; None if all is as it must be."""
        script = self.script
        faulty = faulty_nodes(script)
        if not self.culprits <= faulty:
            return f"honest nodes are convicted: {sorted(self.culprits - faulty)}"
        if script.is_survivable(faulty):
            return self.broken
        if not self.forked:
            return f"{len(faulty)} faulty of {script.nodes} and no fork: the tester is blind"
        if script.is_survivable(self.culprits):
            return f"a fork, and evidence against {sorted(self.culprits)} only"
        return None


def faulty_nodes(script: Script) -> frozenset[int]:
    """Twins, liars, and whose disk forgets what was signed."""
    rolled = [f for f in script.faults if f.kind == "disk" and f.disk == "rolled_back"]
    named = [*(liar.nodes for liar in script.liars), *(fault.nodes for fault in rolled)]
    return frozenset({*script.twins, *(node for nodes in named for node in nodes)})


def scenario_of(script: Script) -> Scenario:
    """The script without its scenes."""
    twins = [AdversaryConfig(kind="twin", nodes=script.twins)] if script.twins else []
    nodes = [NodesConfig(count=script.nodes - script.standing_by)]
    if script.standing_by:
        nodes.append(NodesConfig(name="outside", count=script.standing_by, role="observer"))
    return Scenario(
        name=script.name,
        seed=script.seed,
        nodes=tuple(nodes),
        work=WorkConfig(epoch_rounds=script.epoch_rounds, delta_ms=DELTA_MS),
        faults=script.faults,
        adversaries=(*twins, *script.liars),
        changes=script.changes,
        checks=ChecksConfig(heal_s=60.0),
    )


def play(script: Script, make: Make | None = None) -> Played:
    """Ten more blocks must become final once the last scene is over, and all faults healed."""
    stage = Play(script, DELTA_MS * MS)
    outcome = consensus.run(scenario_of(script), Trace(), make, stage)
    culprits = frozenset(stage.names.index(name) for name in stage.audit.culprits)
    return Played(script, outcome, culprits)
