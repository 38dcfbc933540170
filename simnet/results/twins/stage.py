"""A script on light nodes: whole daemons, whose messages pass as the scenes say, and an audit.

The real schedule of leaders is a shuffle in which everybody leads once a cycle, so it could never
give a twin two views in a row but at a seam. Here a committee pins the leaders of the scenes'
views; all other views, and all later epochs, have the real schedule.

A scene stops what speaks of its view: proposals, votes, certificates, blocks. Offers, Acks and
Execs speak of a round and pass, or nobody could propose. A twin's second body hears no Ack of the
last honest node: so the two propose two sets, each of which names the Acks that its leader knows.
Nor does a page of checkpoints pass, which would tell one side what the other has decided.

The audit hears every statement and certificate on every wire, as any observer may who is given
them, and names whom they convict. It never convicts an honest node, and after a fork it names f+1.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import trio

from daa_consensus.bft.evidence import conflict
from daa_consensus.committee import Committee, Domain
from daa_consensus.votes import Certificate, Kind, Signed
from daa_dag.ids import NodeId
from daa_node.agreement.messages import Certified, Message, Proposed, SentBlock, Stated
from daa_node.genesis import Genesis
from simnet.checks.invariants import ONE_CHAIN, ONE_ENDING, ONE_VERTEX
from simnet.checks.outcome import Outcome
from simnet.nodes.virtual.cluster import Cluster
from simnet.nodes.virtual.job import Founding
from simnet.nodes.virtual.message_lines import Place
from simnet.nodes.virtual.scheduling import now_ns
from simnet.nodes.virtual.world import recover, run_script, troubled
from simnet.results.twins.scripts import Scene, Script
from simnet.world.determinism import Trace
from simnet.world.links import MS
from simnet.world.node_classes import NodesConfig
from simnet.world.scenario import AdversaryConfig, ChecksConfig, Scenario, WorkConfig

DELTA_MS = 250
PATIENCE_DELTAS = 48  # beyond the scenes' own times: what several given up views may take
FORKS = (ONE_VERTEX, ONE_CHAIN, ONE_ENDING)
WORDS_MAX = 200_000  # that one audit remembers
BLOCKS_AFTER = 10  # an attack
ROUNDS_MAX, ATTACK_S_MAX = 1000, 600.0  # more than any script takes
STEP_S, WINDOW_S = 0.2, 4.0  # a round of one step, over as soon as all have heard of all
SNAPSHOT_EVERY = 64


@dataclass(frozen=True)
class PinnedCommittee(Committee):
    """Leads the named views of the first epoch by the named validators."""

    pinned: tuple[tuple[int, NodeId], ...] = ()

    def leader(self, domain: Domain, view: int) -> NodeId:
        found = None if domain.epoch else dict(self.pinned).get(view)
        return super().leader(domain, view) if found is None else found


@dataclass(slots=True)
class Audit:
    """Every statement that was on a wire, by signer and slot; and whom two of them convict."""

    culprits: set[NodeId] = field(default_factory=set)
    _said: dict[tuple[NodeId, int, int, int], list[Signed]] = field(default_factory=dict)
    _words: int = 0

    def hear(self, message: Message) -> None:
        match message.body:
            case Stated(signed):
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


@dataclass(frozen=True)
class PinnedGenesis(Genesis):
    """One whose first committee is led so."""

    pinned: tuple[tuple[int, NodeId], ...] = ()

    @cached_property
    def committee(self) -> Committee:
        return PinnedCommittee(
            Genesis(self.body, self.records).committee.validators, pinned=self.pinned
        )


class Play:
    """The stage of one script; see simnet/nodes/virtual/message_lines.py."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self._scenes: dict[int, Scene] = dict(enumerate(script.scenes, 1))
        self._ends_ns: dict[int, int] = {}  # of scenes that have begun
        self._before_view = None if script.from_change else 0  # the last view without a scene
        patience = PATIENCE_DELTAS + sum(scene.deltas for scene in script.scenes)
        self._limit_ns = patience * DELTA_MS * MS
        self.audit = Audit()
        self._number_of: dict[NodeId, int] = {}
        self._unheard: NodeId | None = None  # whose Acks no second body hears
        self._cluster: Cluster | None = None

    def founded(self, founding: Founding) -> Founding:
        script, names = self._script, [keys.node_id for keys in founding.keys]
        self._number_of = {name: number for number, name in enumerate(names)}
        honest = [n for n in range(script.nodes - script.standing_by) if n not in script.twins]
        self._unheard = names[honest[-1]]
        pinned = tuple(
            (view, names[scene.leader])
            for view, scene in self._scenes.items()
            if scene.leader is not None
        )
        genesis = founding.genesis
        return replace(founding, genesis=PinnedGenesis(genesis.body, genesis.records, pinned))

    def passes(self, sender: Place, receiver: Place, message: Message) -> bool:
        self.audit.hear(message)
        now = now_ns()
        if self.is_over(now):
            return True
        epoch, view, kind = subject(message) or (
            message.position.epoch,
            message.position.view,
            None,
        )
        if epoch < self._first_epoch():
            return sender[1] == 0 or not isinstance(message.body, Stated | Proposed)
        scene = self._scene(view)
        if subject(message) is None and not (scene and scene.silent):
            return receiver[1] == 0 or not self._is_unheard(message)
        if scene is None:
            return True
        ends_ns = self._ends_ns.setdefault(view, now + scene.deltas * DELTA_MS * MS)
        return now >= ends_ns or scene.hears(sender, receiver, kind)

    def meets(self, asking: Place, asked: Place) -> bool:
        """Pages tell what the other side has decided: they stay inside the parts of a scene."""
        now = now_ns()
        lasting = [self._scene(view) for view, ends_ns in self._ends_ns.items() if now < ends_ns]
        parted = [scene for scene in lasting if scene is not None and scene.parts]
        return all(scene.hears(asking, asked, None) for scene in parted)

    def _first_epoch(self) -> float:
        """Of the first scene."""
        if not self._script.from_change:
            return 0
        assert self._cluster is not None
        epochs = self._cluster.sightings.watch.audit.epochs
        first = epochs[0].committee.stake_of
        changed = (each.epoch for each in epochs if each.committee.stake_of != first)
        return next(changed, float("inf"))

    def _scene(self, view: int) -> Scene | None:
        if self._before_view is None:
            self._before_view = view - 1
        return self._scenes.get(view - self._before_view)

    def _is_unheard(self, message: Message) -> bool:
        match message.body:
            case Stated(signed) if signed.statement.kind is Kind.ACK:
                return signed.signer == self._unheard
            case _:
                return False

    def is_over(self, at_ns: int) -> bool:
        """Whether everything passes from then on."""
        if at_ns >= self._limit_ns:
            return True
        begun = len(self._ends_ns) == len(self._scenes)
        return begun and at_ns >= max(self._ends_ns.values(), default=0)

    async def attack(self, cluster: Cluster) -> None:
        """All scenes and faults; then blocks become final, and everybody follows."""
        self._cluster = cluster
        assert cluster.lines is not None
        async with troubled(cluster) as operators:
            while not self.is_over(now_ns()):
                await trio.sleep(DELTA_MS / 1e3)
            cluster.lines.reopen()
            cluster.sightings.healed = cluster.wanted
            await recover(cluster, operators)

    @property
    def culprits(self) -> frozenset[int]:
        """Whom the audit convicts, by number."""
        return frozenset(self._number_of[name] for name in self.audit.culprits)


def subject(message: Message) -> tuple[int, int, Kind | None] | None:
    """The epoch and view of a message, and its kind if it is a vote or a certificate."""
    match message.body:
        case Stated(spoken) | Proposed(spoken, _, _) | Certified(spoken, _) if (
            spoken.statement.view > 0
        ):
            words = spoken.statement
            return words.domain.epoch, words.view, words.kind
        case SentBlock(block, _):
            return block.epoch, block.view, None
        case _:
            return None


@dataclass(frozen=True, slots=True)
class Played:
    """What came of a script. Nodes are numbers."""

    script: Script
    outcome: Outcome
    culprits: frozenset[int]

    @property
    def committees(self) -> Sequence[Mapping[int, int]]:
        """Each that votes after another: stakes by number."""
        found: list[Mapping[int, int]] = []
        for text in self.outcome.facts["committees"]:
            pairs = (pair.split(":") for pair in text.split())
            found.append({int(node): int(stake) for node, stake in pairs})
        return found

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
        fidelity="light",
        duration_s=ATTACK_S_MAX,
        work=WorkConfig(
            kind="training",
            rounds=ROUNDS_MAX,
            inner_steps_max=1,
            step_s=STEP_S,
            window_s=WINDOW_S,
            epoch_rounds=script.epoch_rounds,
            delta_ms=DELTA_MS,
            snapshot_every=SNAPSHOT_EVERY,
        ),
        faults=script.faults,
        adversaries=(*twins, *script.liars),
        changes=script.changes,
        checks=ChecksConfig(finalizations_after_heal=BLOCKS_AFTER, heal_s=60.0),
    )


def play(script: Script) -> Played:
    """Ten more blocks must become final once the last scene is over, and all faults healed."""
    stage = Play(script)
    outcome = run_script(scenario_of(script), Trace(), stage.attack, stage)
    return Played(script, outcome, stage.culprits)
