"""A cluster of whole daemons in trouble for each seed: what befalls it, and how often, is drawn.

Swarm testing (Groce et al. 2012): each seed enables some kinds of faults and gives each a rate of
its own, for where everything may happen, much of it hides the rest. Some seeds have liars, some
poisoners, some changes of members, some of them all three.

What is drawn stays within what the network promises to survive: liars, and nodes whose disk may
make them forget, weigh f at most together, and are no more by number than the merge rule holds off,
in every committee that there may come to be.
"""

from random import Random
from typing import get_args

from daa_consensus.committee import Committee, Validator
from daa_consensus.roll import Admission
from daa_dag.ids import DIGEST_BYTES, NodeId
from daa_node.rounds.trainers import TrainersConfig
from daa_node.updates.config import UpdatesConfig
from simnet.world.determinism import Streams
from simnet.world.links import MILLION
from simnet.world.node_classes import NodesConfig
from simnet.world.random_changes import random_changes
from simnet.world.random_cores import with_core
from simnet.world.random_faults import (
    LIARS,
    at_leaders,
    parting,
    random_fault,
    rhythm,
    weak_nodes,
)
from simnet.world.releases import NEXT_RELEASE, UpgradeConfig
from simnet.world.scenario import (
    AdversaryConfig,
    ChangeConfig,
    ChecksConfig,
    DiskFault,
    FaultConfig,
    Poison,
    Preset,
    Scenario,
    TopologyConfig,
    WorkConfig,
)

VALIDATORS = (*(4,) * 36, 5, 5, 6, 7)  # what a run costs grows with their square
PRESETS: tuple[Preset, ...] = (*("local",) * 4, *("regional",) * 4, "wan")
DELTA_MS: dict[str, tuple[int, ...]] = {
    "local": (50, 100),
    "regional": (100, 250),
    "wan": (500,),  # which some of its links take longer than
}
TROUBLE_S = (1.5, 3.5)  # in which faults begin and end: at the most some ten rounds
# Now and then the job is done amid the trouble. Else it lasts for what must be shown, and nobody
# trains on for ever while one who was away comes back.
ROUNDS = (3, 10, 10, 10)
STEPS = (1, 1, 2)  # of a round: enough to move the model
STEP_S = 0.15  # rounds of a second and less: shorter ones show nothing more
WINDOW_S = (1.0, 4.0)
WINDOW_DELTAS = 8  # at least: in less, far members abort every round
EPOCH_ROUNDS = (1, 1, 2, 4)
SNAPSHOT_EVERY = (1, 2, 4)
RESTORABLE = (1, 1, 2, 4, None)  # of the newest vertices: who was away finds deltas gone
CODECS = ("int8", "int8", "int4", "top_k")  # the last where nobody lies about its training
UNEQUAL_SHARE = 0.25  # of runs whose nodes have stakes of their own
STAKES = (1, 1, 2, 3)
THIN_SHARE = 0.1  # of runs: one node has an access link of its own
# What its uplink carries to each other member within a delta: messages of certificates, and part of
# an update. On a thinner one it cannot keep what delta promises, and would count as faulty.
THIN_BYTES_A_DELTA = (50_000, 200_000)
CHANGES_SHARE = 0.22  # of runs in which members come and go: each costs twice as much
CHANGES_UNTIL_S = 0.5  # first asked for: so that they take effect amid the faults
CHANGES_MAX = 2
OUTSIDE = (*(1,) * 7, 2)  # most, of nodes that stand by
CHANGING = (*(4,) * 9, 5)  # validators of such runs
CHANGING_EPOCH_ROUNDS = (1, 1, 2)  # and boundaries come amid the faults, too
CHANGING_ROUNDS = (3, 20, 20, 20)  # eight epochs, and some rounds more
CHANGING_PRESETS: tuple[Preset, ...] = ("local", "regional")
CHANGING_DELTA_MS = (50, 100)
CHANGING_WINDOW_S = 0.8
CHANGING_TROUBLE_S = (4.0, 7.0)  # the first boundary that changes anything comes after two or three
PARTED_SHARE = 0.12  # of such runs: the liar, or somebody, is alone, and the others are sound,
PARTED_S = 8.0  # until they have changed without it
OBSERVED_SHARE = 0.1  # of other runs: one node looks on
TRAINERS_SHARE = 0.15  # of runs in which nobody stands by: besides, some train and do not vote
TRAINERS = (1, 2, 2, 3)
CROWDS_SHARE = 0.05  # of those: most of what a validator keeps is of trainers
CROWD = (32, 40)  # a bound that forgets them is below what one round of theirs takes
NEWCOMERS_SHARE = 0.1  # of runs: besides all others, some enroll
NEWCOMERS = (1, 1, 2, 3)
LYING_TRAINER_SHARE = 0.3  # of those without a puppet: a trainer makes two offers in each round
LIARS_SHARE = 0.5  # of runs that may have liars
POISON_SHARE = 0.15  # of those: all lie about their training, and half the run is run again
POISONS: tuple[Poison, ...] = get_args(Poison)
PUPPETS_SHARE = 0.5  # of runs that may have liars: one says anything that its key can sign
FREE_RIDER_ONE_IN = 3  # of who lies about its training
KINDS = ("partition", "kill", "disk", "hold", "loss", "pause", "clock", "slow")
ENABLED_SHARE = 0.3  # of the kinds, in each run
RATE_MAX = 3  # of one kind: so often at the most in a run
RHYTHM_SHARE = 0.25  # of runs: instead, one kind of fault that keeps coming back
LEADERS_SHARE = 0.25  # of runs: besides, one kind of fault in rhythm, at whoever leads just then
# Once, and no slower: what is on its way over a link a thousand times slower arrives minutes after
# it has healed, and all that follows behind it.
SLOW_FACTOR = 20.0
# Beside those that random_fault draws: who keeps what it promises survives all of it.
DISKS: tuple[DiskFault, ...] = (*("failed_sync", "failed_rename", "slow", "torn_write", "cleared"),)
DISK_SLOWER = (20.0, 200.0)  # a sync then takes 40 or 400 ms
PERCENTS = (5.0, 20.0)  # of messages that come twice, or of what is overtaken
RELEASES_SHARE = (
    0.12  # of runs: nodes of the next release are among them, some of them from amid it
)
UPGRADE_AWAY_S = (0.1, 0.8)
FILES_SHARE = 0.25  # of what befalls files and streams, in each run
NIGHTS_SHARE = 0.1  # of runs with somebody who looks on
HEARD_S = 6.0  # by then who looks on has heard how far the others are
NIGHT_ROUNDS = 40  # the job is not over by then
NIGHT_S = 40.0  # longer than a node is patient with silence, see daa_node/rounds/scouting.py
# A round, of a set and its closing; and then the next set, always where members change.
BLOCKS_AFTER_HEAL, CHANGING_BLOCKS_AFTER_HEAL = 2, 3
VERTICES_AFTER_HEAL = 1  # and so many are certified, not aborted
# For these blocks: whoever found a connection dead dials again for seconds, a daemon that fell over
# its disk three times is given another one, and views have grown as long as their cap.
HEAL_S = 90.0
LOSS_ABOVE_TWIN_NATS = 0.35  # a poisoned run, over few rounds: unchecked, one round costs as much


def random_daemons(seed: int) -> Scenario:
    """Of whole daemons, with four to seven validators at first; the same for every fidelity."""
    chance = Streams(seed).random("daemons")
    changing = chance.random() < CHANGES_SHARE
    count = chance.choice(CHANGING if changing else VALIDATORS)
    unequal = not changing and chance.random() < UNEQUAL_SHARE
    stakes = [chance.choice(STAKES) if unequal else 1 for _ in range(count)]
    weak = weak_nodes(chance, stakes)[: UpdatesConfig().f_agg_among(count)]
    liars = chance.randint(1, len(weak)) if weak and chance.random() < LIARS_SHARE else 0
    presets = CHANGING_PRESETS if changing else PRESETS
    lasting = CHANGING_TROUBLE_S if changing else TROUBLE_S
    preset, trouble_s = chance.choice(presets), round(chance.uniform(*lasting), 1)
    adversaries = _adversaries(chance, weak[:liars])
    fragile = weak[liars:]
    if weak and Streams(seed).random("puppet").random() < PUPPETS_SHARE:
        # It may leave whenever it likes, and f with it: nobody else lies or forgets.
        adversaries, fragile = [AdversaryConfig(kind="puppet", nodes=(weak[0],))], []
    outside, changes = 0, tuple[ChangeConfig, ...]()
    if changing:
        until_s = min(CHANGES_UNTIL_S, trouble_s)
        outside, changes = random_changes(
            *(chance, count, sorted(weak), until_s, chance.choice(OUTSIDE), CHANGES_MAX)
        )
        # whoever stands by for nothing would cost as much as who is needed
        outside = max([0, *(node + 1 - count for change in changes for node in change.nodes)])
    elif chance.random() < OBSERVED_SHARE:
        outside = 1
    thin = chance.randrange(count) if chance.random() < THIN_SHARE else None
    poisoned = any(adversary.kind == "poisoner" for adversary in adversaries)
    work = _work(chance, preset, not poisoned, bool(changes))
    thin_bits_s = 8e3 * chance.choice(THIN_BYTES_A_DELTA) * (count - 1) / work.delta_ms
    nodes = [
        NodesConfig(
            name=f"node-{node}",
            count=1,
            stake=stake,
            up_mbit_s=thin_bits_s / MILLION if node == thin else None,
        )
        for node, stake in enumerate(stakes)
    ]
    if outside:
        nodes.append(NodesConfig(name="outside", count=outside, role="observer"))
    else:
        nodes += _trainers(seed)
    scenario = Scenario(
        name="random-daemons",
        seed=seed,
        fidelity="light",
        duration_s=trouble_s + 0.1,
        nodes=tuple(nodes),
        topology=TopologyConfig(preset=preset),
        work=work,
        adversaries=tuple(adversaries),
        changes=changes,
        checks=ChecksConfig(
            heal_s=HEAL_S * (2 if preset == "wan" else 1),
            finalizations_after_heal=CHANGING_BLOCKS_AFTER_HEAL if changing else BLOCKS_AFTER_HEAL,
            vertices_after_heal=VERTICES_AFTER_HEAL,
            loss_above_twin_nats=LOSS_ABOVE_TWIN_NATS if poisoned else None,
        ),
    )
    scenario = _with_lying_trainer(_in_trouble(scenario, chance, fragile, trouble_s))
    scenario = _with_releases(_with_newcomers(scenario), trouble_s)
    night = Streams(seed).random("night")
    if outside and night.random() < NIGHTS_SHARE:
        scenario = _in_the_night(scenario, night)
    return with_core(scenario)


def _trainers(seed: int) -> list[NodesConfig]:
    chance = Streams(seed).random("trainers")
    if chance.random() >= TRAINERS_SHARE:
        return []
    count, crowd = chance.choice(TRAINERS), Streams(seed).random("crowd")
    if crowd.random() < CROWDS_SHARE:
        count = crowd.choice(CROWD)
    return [NodesConfig(name="trainer", count=count, role="trainer")]


def _with_newcomers(scenario: Scenario) -> Scenario:
    """Who enrolls while all that happens: nothing befalls it, and nobody in the genesis is it."""
    chance = Streams(scenario.seed).random("newcomers")
    if chance.random() >= NEWCOMERS_SHARE:
        return scenario
    coming = NodesConfig(name="newcomer", count=chance.choice(NEWCOMERS), role="newcomer")
    admission = chance.choice((Admission.VOUCHED, Admission.VOUCHED, Admission.OPEN))
    rules = TrainersConfig(admission=admission, per_voucher=chance.randint(1, 2), max=16)
    work = scenario.work.model_copy(update={"trainers": rules})
    members = _committee(scenario)
    count = len(members.validators)
    if rules.why_outvoted(members.liars_max, count, work.updates) is not None:
        return scenario  # a genesis of such stakes lets in no trainers
    return scenario.model_copy(update={"nodes": (*scenario.nodes, coming), "work": work})


def _committee(scenario: Scenario) -> Committee:
    """Of members with names of no key: what their stakes alone decide."""
    groups = [group for group in scenario.nodes if group.role == "validator"]
    stakes = [group.stake for group in groups for _ in range(group.count)]
    return Committee(
        tuple(
            Validator(NodeId(number.to_bytes(DIGEST_BYTES, "big")), stake)
            for number, stake in enumerate(stakes)
        )
    )


def _with_releases(scenario: Scenario, trouble_s: float) -> Scenario:
    """Each class runs the next release, or is given that while all this happens.

    None is left behind: once a quorum speaks the next version, others stop until they do.
    """
    chance = Streams(scenario.seed).random("releases")
    if chance.random() >= RELEASES_SHARE:
        return scenario
    nodes = []
    for group in scenario.nodes:
        match chance.choice(("next", "upgraded", "upgraded")):
            case "next":
                group = group.model_copy(update={"speaks": NEXT_RELEASE})
            case _:
                away_s = round(chance.uniform(*UPGRADE_AWAY_S), 3)
                room_s = max(0.0, trouble_s - group.count * away_s)
                at_s = round(chance.uniform(0, room_s), 3)
                upgrade = UpgradeConfig(
                    speaks=NEXT_RELEASE, at_s=at_s, every_s=away_s, away_s=away_s
                )
                group = group.model_copy(update={"upgrade": upgrade})
        nodes.append(group)
    return scenario.model_copy(update={"nodes": tuple(nodes)})


def _with_lying_trainer(scenario: Scenario) -> Scenario:
    """Beside any liars among the members, as a merge holds off a third of the trainers besides."""
    chance, last = Streams(scenario.seed).random("lying trainer"), scenario.node_count - 1
    is_puppet = any(liar.kind == "puppet" for liar in scenario.adversaries)
    if scenario.group_of(last).role != "trainer" or is_puppet:
        return scenario
    if chance.random() >= LYING_TRAINER_SHARE:
        return scenario
    liar = AdversaryConfig(kind="double_offerer", nodes=(last,))
    return scenario.model_copy(update={"adversaries": (*scenario.adversaries, liar)})


def _in_the_night(scenario: Scenario, chance: Random) -> Scenario:
    """Somebody comes back after all others have gone who vote: those who look on know more."""
    voters, over_s = scenario.node_count - scenario.nodes[-1].count, scenario.duration_s + HEARD_S
    back = chance.randrange(voters)
    gone_s = round(chance.uniform(0, scenario.duration_s), 3)
    others = tuple(node for node in range(voters) if node != back)
    night = (
        FaultConfig(kind="kill", at_s=gone_s, for_s=over_s + 1 - gone_s, nodes=(back,)),
        FaultConfig(kind="kill", at_s=over_s, for_s=NIGHT_S, nodes=others),
    )
    faults, until_s = (*scenario.faults, *night), over_s + NIGHT_S
    work = scenario.work.model_copy(update={"rounds": NIGHT_ROUNDS})
    return scenario.model_copy(update={"faults": faults, "duration_s": until_s, "work": work})


def _of_files_and_streams(chance: Random, count: int, trouble_s: float) -> list[FaultConfig]:
    """Besides all else: what only whole daemons have."""
    kinds: list[dict[str, object]] = [{"kind": "disk", "disk": disk} for disk in DISKS]
    kinds += [{"kind": "reorder"}, {"kind": "duplicate"}, {"kind": "drain"}]
    found = []
    for what in kinds:
        if chance.random() >= FILES_SHARE:
            continue
        for _ in range(chance.randint(1, RATE_MAX)):
            # There must be something to clear, and at first there is nothing.
            from_s = trouble_s / 2 if what.get("disk") == "cleared" else 0.0
            at_s = chance.uniform(from_s, trouble_s * 0.9)
            fields: dict[str, object] = {
                "at_s": round(at_s, 3),
                "for_s": round(max(0.05, chance.uniform(0, trouble_s - at_s)), 3),
                "nodes": tuple(sorted(chance.sample(range(count), chance.randint(1, count)))),
            }
            if what["kind"] in ("reorder", "duplicate"):
                fields["percent"] = chance.choice(PERCENTS)
            elif what.get("disk") == "slow":
                fields["factor"] = chance.choice(DISK_SLOWER)
            found.append(FaultConfig.model_validate({**what, **fields}))
    return found


def _work(chance: Random, preset: Preset, learns: bool, changing: bool) -> WorkConfig:
    """`learns`: nobody is poisoned, so that a merge may hold nobody off."""
    delta_ms = chance.choice(CHANGING_DELTA_MS if changing else DELTA_MS[preset])
    window_s = CHANGING_WINDOW_S if changing else chance.choice(WINDOW_S)
    return WorkConfig.model_validate(
        {
            "kind": "training",
            "rounds": chance.choice(CHANGING_ROUNDS if changing else ROUNDS),
            "codec": chance.choice(CODECS if learns else CODECS[:-1]),
            "inner_steps_max": chance.choice(STEPS),
            "step_s": STEP_S,
            "window_s": max(window_s, WINDOW_DELTAS * delta_ms / 1e3),
            "delta_ms": delta_ms,
            "epoch_rounds": chance.choice(CHANGING_EPOCH_ROUNDS if changing else EPOCH_ROUNDS),
            "snapshot_every": chance.choice(SNAPSHOT_EVERY),
            "vertices_restorable": chance.choice(RESTORABLE),
        }
    )


def _adversaries(chance: Random, liars: list[int]) -> list[AdversaryConfig]:
    """Each of a kind of its own; all of them, or none, lie about their training."""
    found = []
    training = chance.random() < POISON_SHARE
    for node in liars:
        if not training:
            found.append(AdversaryConfig(kind=chance.choice(LIARS), nodes=(node,)))
        elif not chance.randrange(FREE_RIDER_ONE_IN):
            found.append(AdversaryConfig(kind="free_rider", nodes=(node,)))
        else:
            poison = chance.choice(POISONS)
            found.append(AdversaryConfig(kind="poisoner", nodes=(node,), poison=poison))
    return found


def _in_trouble(
    scenario: Scenario, chance: Random, fragile: list[int], trouble_s: float
) -> Scenario:
    """What befalls it: some of the kinds, each at a rate of its own."""
    count, until_s, faults = scenario.node_count, scenario.duration_s, list[FaultConfig]()
    enabled = [kind for kind in KINDS if chance.random() < ENABLED_SHARE]
    if chance.random() < RHYTHM_SHARE:
        enabled, faults = [], rhythm(chance, count, fragile, trouble_s)
        faults = [parting(fault, count) for fault in faults]
    for kind in enabled if faults else enabled or [chance.choice(KINDS)]:
        for _ in range(chance.randint(1, RATE_MAX)):
            fault = random_fault(chance, kind, count, fragile, trouble_s)
            if kind == "slow":
                faults = [each for each in faults if each.kind != "slow"]
                fault = fault.model_copy(update={"factor": SLOW_FACTOR})
            faults.append(parting(fault, count))
    if chance.random() < LEADERS_SHARE:
        faults += at_leaders(chance, trouble_s)
    if scenario.changes and chance.random() < PARTED_SHARE:
        alone = (*(node for liar in scenario.adversaries for node in liar.nodes), 0)[0]
        parted = {"kind": "partition", "shape": "isolate", "nodes": (alone,)}
        faults = [FaultConfig(at_s=CHANGES_UNTIL_S, for_s=PARTED_S, **parted)]
        until_s = CHANGES_UNTIL_S + PARTED_S + 0.1
    faults += _of_files_and_streams(Streams(scenario.seed).random("files"), count, trouble_s)
    ordered = tuple(sorted(faults, key=lambda fault: fault.at_s))
    return scenario.model_copy(update={"faults": ordered, "duration_s": until_s})
