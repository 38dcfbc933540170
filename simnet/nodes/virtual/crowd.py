"""Volunteers of a run: each comes to its gateway, does what it is there for, and comes back.

    away --connects--> session --refused, or cut off--> away, for ever longer pauses if it is honest

Their signatures are real in every fidelity, and they are made of nothing but bytes to the gateway.
An address is a place on the simulated network, behind the nodes' own; all who share it share its
links. Honest results are worked out once for all who get the same task.
"""

import random
from collections import Counter, OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import trio

from daa_dag import canonical
from daa_dag.ids import ChainId, digest_of
from daa_node.adapters.libp2p_transport import Libp2pTransport
from daa_node.errors import PeerFault, Unavailable
from daa_node.gateway.piece import IN_BITS
from daa_node.gateway.task_desk import AUDITED_EVERY, COPIES
from daa_node.identity.keys import NodeKeys
from daa_node.network.config import NetworkConfig
from daa_node.seams import Address
from daa_node.wire import protocols
from daa_node.wire.limits import LENGTH_PREFIX_BYTES, VOLUNTEER_FRAME_BYTES_MAX
from daa_node.wire.volunteer_messages import TaskKind
from simnet.checks.invariants import VOLUNTEERS
from simnet.checks.outcome import Invariant, nothing
from simnet.nodes.virtual.light_transport import LightTransport
from simnet.nodes.virtual.machine import Machine
from simnet.nodes.virtual.network import Network, SimulatedTransport, host_of
from simnet.nodes.virtual.scheduling import now_ns
from simnet.nodes.virtual.steady_signatures import steady_signer_of
from simnet.nodes.virtual.third_party import EPOCH_S
from simnet.nodes.virtual.volunteer import Answer, Result, Volunteer, honest
from simnet.world.determinism import Streams
from simnet.world.links import NS
from simnet.world.scenario import Scenario
from simnet.world.volunteers import VolunteerKind, VolunteersConfig

ARRIVING_S = 5.0  # in which all of a kind come
BACK_S_LEAST, BACK_S_MOST = 1.0, 60.0  # pauses of who is honest
HOSTILE_BACK_S = 0.5  # and of who is not
DIAL_S_MAX = 20.0
NOTICED_S = 3.0  # after which a gateway has seen that a page was closed, and parted from it
ANSWERS_KEPT = 64
CUT_OFF, LEFT = "cut off", "left"  # in the place of a reason: nobody said why; by itself
# After which reasons a page comes back by itself.
COMES_BACK = frozenset({"full", "address-full", "silent", "idle", "ended", CUT_OFF, LEFT})
# What may befall an honest page besides: whoever shares its address may have done wrong.
OTHERS_FAULT = COMES_BACK | {"address-faults", "new-names"}
HONEST: tuple[VolunteerKind, ...] = ("honest", "leaver")
LIARS: tuple[VolunteerKind, ...] = ("liar", "colluder", "seer")
# A gateway looks at one in five of what three agree about: so many times nobody gets by (1 in 800).
LIES_MAX = 30
GARBAGE = (50).to_bytes(LENGTH_PREFIX_BYTES) + b"\xff" * 50
TOO_LONG = (VOLUNTEER_FRAME_BYTES_MAX + 1).to_bytes(LENGTH_PREFIX_BYTES) + bytes(1000)
BEAT = canonical.encode(["beat", 1])
FLOOD = (len(BEAT).to_bytes(LENGTH_PREFIX_BYTES) + BEAT) * 400
# How those differ from a page who differ by what they say.
HOW: dict[VolunteerKind, dict[str, Any]] = {
    "leaver": {"leaves_with": 3},
    "sleeper": {"frames_each": 0},
    "garbler": {"opening": GARBAGE},
    "oversizer": {"opening": TOO_LONG},
    "flooder": {"opening": FLOOD},
    "replayer": {"frames_each": 2},
    "masker": {"leaves_with": 0},
}


@dataclass(slots=True)
class Tally:
    """What became of those of one entry of the scenario."""

    pages: list[Volunteer] = field(default_factory=list)  # one for each time that somebody came
    ends: Counter[str] = field(default_factory=Counter)  # of sessions, and of who did not come in
    lies: set[bytes] = field(default_factory=set)  # tasks to which somebody answered wrong

    @property
    def believed(self) -> int:
        """How many lies were told to be right."""
        return sum(task in self.lies for page in self.pages for task in page.right)

    def judged(self, is_right: bool | None) -> int:
        """How many verdicts were told to be that; None: not yet."""
        return sum(page.judged[is_right] for page in self.pages)


class Truths:
    """Honest results by task: many get the same one."""

    def __init__(self) -> None:
        self._known: OrderedDict[bytes, Result] = OrderedDict()

    def of(
        self, task: bytes, kind: TaskKind, parameters: Sequence[Any], blobs: Sequence[bytes]
    ) -> Result:
        if task not in self._known:
            self._known[task] = honest(task, kind, parameters, blobs)
            if len(self._known) > ANSWERS_KEPT:
                self._known.popitem(last=False)
        return self._known[task]


class Crowd:
    """All volunteers of one run. `run` until nobody is wanted any more."""

    def __init__(
        self,
        scenario: Scenario,
        streams: Streams,
        network: Network,
        machines: Sequence[Machine],
        chain_id: ChainId,
        real_keys: set[bytes],
    ) -> None:
        """`real_keys`: gets every public key whose signatures are real ones."""
        self._groups = scenario.volunteers
        self._is_light = scenario.fidelity == "light"
        self._streams = streams.below("volunteers")
        self._network = network
        self._machines = machines
        self._chain_id = chain_id
        self._real_keys = real_keys
        self._first_address = scenario.node_count
        self._truths = Truths()
        self._scope, self._gone = trio.CancelScope(), trio.Event()
        self._tallies = [Tally() for _ in self._groups]
        self._said: Mapping[int, Mapping[str, Any]] = {}  # by gateways, at the end

    async def run(self) -> None:
        """Until `leave`."""
        first = self._first_address
        with self._scope:
            async with trio.open_nursery() as nursery:
                for group, tally in zip(self._groups, self._tallies, strict=True):
                    for number in range(group.count):
                        address = first + number // group.per_address
                        body = number % group.per_address
                        nursery.start_soon(self._come, group, tally, (address, body))
                    first += group.addresses
        self._gone.set()

    async def leave(self) -> None:
        """All of them close their pages; what the gateways say of them is kept."""
        gateways = sorted({group.node for group in self._groups})
        up = [n for n in gateways if "status" in self._machines[n].desk.handlers]
        told = {node: await self._machines[node].ask("status") for node in up}
        self._said = {node: said["gateway"]["volunteers"] for node, said in told.items()}
        self._scope.cancel()
        await self._gone.wait()
        if self._groups:
            await trio.sleep(NOTICED_S)

    # What came of it

    def facts(self) -> dict[str, Any]:
        """Nothing where nobody was to come."""
        if not self._groups:
            return {}
        rows = zip(self._groups, self._tallies, strict=True)
        return {
            "volunteers": [
                {
                    "kind": group.kind,
                    "count": group.count,
                    "sessions": sum(page.welcomed.is_set() for page in tally.pages),
                    "verdicts": sum(len(page.done) for page in tally.pages),
                    "agreed": tally.judged(True),
                    "disagreed": tally.judged(False),
                    "ended": dict(sorted(tally.ends.items())),
                }
                for group, tally in rows
            ],
            "gateways": [{"node": node, **said} for node, said in self._said.items()],
        }

    def invariants(self) -> Iterator[Invariant]:
        """Honest pages are right, liars are not, and no gateway finds fault with the honest."""
        wrong = []
        for group, tally in zip(self._groups, self._tallies, strict=True):
            if group.kind in HONEST:
                ends = tally.ends.items()
                wrong += [f"{n} times {why}" for why, n in ends if why not in OTHERS_FAULT]
                wrong += [f"{n} found wrong" for n in [tally.judged(False)] if n]
            elif tally.believed > self._lies_max(group):
                wrong.append(f"a {group.kind} found right {tally.believed} times")
        if self._groups:
            yield nothing(VOLUNTEERS, sorted(wrong))

    def _lies_max(self, group: VolunteersConfig) -> int:
        """How many may be believed: none of too few addresses, if somebody honest came before them.

        Who is alone at a gateway, or at three addresses, gets by until it is looked at.
        """
        here = [other for other in self._groups if other.node == group.node]
        alike = sum(other.addresses for other in here if other.kind in LIARS)
        others = [other.at_s for other in here if other.kind == "honest"]
        are_first = bool(others) and min(others) + ARRIVING_S <= group.at_s
        is_alone = group.kind == "liar" or (alike < COPIES and are_first)
        return 0 if is_alone else LIES_MAX * group.count

    # One of them

    async def _come(self, group: VolunteersConfig, tally: Tally, place: tuple[int, int]) -> None:
        chance = self._streams.random(f"{group.kind} at {place}")
        keys, back_s, names = self._keys(place, 0), BACK_S_LEAST, 0
        await trio.sleep(group.at_s + chance.uniform(0, ARRIVING_S))
        while True:
            page = self._page(group, keys, chance, tally.lies)
            tally.pages.append(page)
            since_s = trio.current_time()
            reason = await self._attend(group, place, page)
            tally.ends[reason] += 1
            if group.kind not in HONEST:
                await trio.sleep(HOSTILE_BACK_S)
            elif reason in COMES_BACK:
                back_s = min(BACK_S_MOST, 2 * back_s)
                back_s = BACK_S_LEAST if trio.current_time() - since_s > BACK_S_MOST else back_s
                await trio.sleep(back_s * chance.uniform(0.5, 1))
            else:
                return
            if group.kind == "masker":
                names += 1
                keys = self._keys(place, names)

    def _keys(self, place: tuple[int, int], name: int) -> NodeKeys:
        seed = self._streams.bytes(f"keys {place} {name}")
        keys = NodeKeys.from_seed(seed, steady_signer_of)
        self._real_keys.add(keys.ml_dsa_public_key)
        return keys

    def _page(
        self, group: VolunteersConfig, keys: NodeKeys, chance: random.Random, lies: set[bytes]
    ) -> Volunteer:
        machine = self._machines[group.node]
        return Volunteer(
            keys,
            self._chain_id,
            machine.node_id,
            lambda: EPOCH_S + now_ns() // NS,
            self._answer(group.kind, chance, lies),
            pause_s=lambda: chance.expovariate(1 / group.task_s) if group.task_s else 0.0,
            **HOW.get(group.kind, {}),
        )

    def _answer(self, kind: VolunteerKind, chance: random.Random, lies: set[bytes]) -> Answer:
        """`lies`: gets each task to which the answer is wrong."""

        def answer(
            task: bytes, kind_of_task: TaskKind, parameters: Sequence[Any], blobs: Sequence[bytes]
        ) -> Result:
            truth = self._truths.of(task, kind_of_task, parameters, blobs)
            if kind == "seer" and (kind_of_task in IN_BITS or foreseen(task)):
                return truth
            said = bent(truth, chance.random() if kind == "liar" else 0.0)
            if list(said) != list(truth):
                lies.add(task)
            return said

        return answer if kind in LIARS else self._truths.of

    async def _attend(
        self, group: VolunteersConfig, place: tuple[int, int], page: Volunteer
    ) -> str:
        """Until the session ends; by which reason."""
        transport = self._transport(place, page.keys)
        try:
            async with trio.open_nursery() as nursery:
                await nursery.start(transport.run)
                with trio.fail_after(DIAL_S_MAX):
                    address = Address(self._machines[group.node].address)
                    peer_id = await transport.dial(address)
                    stream = await transport.open_stream(peer_id, protocols.VOLUNTEER)
                await page.attend(stream)
                await transport.hang_up(peer_id)
                nursery.cancel_scope.cancel()
        except* (Unavailable, PeerFault, trio.BrokenResourceError, trio.TooSlowError):
            pass  # the gateway has gone, or has cut it off
        if page.refused is not None:
            return page.refused[0]
        return LEFT if page.has_left else CUT_OFF

    def _transport(
        self, place: tuple[int, int], keys: NodeKeys
    ) -> LightTransport | Libp2pTransport:
        address, body = place
        if self._is_light:
            host = host_of(address, body)
            return LightTransport(self._network, address, host, keys.peer_id)
        config = NetworkConfig(listen=(), bootstrap=(), websocket=False)
        return Libp2pTransport(
            keys.ed25519_seed,
            "volunteers",
            config,
            lambda _nursery: [SimulatedTransport(self._network, address)],
        )


def foreseen(task: bytes) -> bool:
    """Whether somebody looks at a task by a lot that everybody can draw who has it."""
    return digest_of(task)[0] % AUDITED_EVERY == 0


def bent(result: Result, place: float) -> Result:
    """A wrong one of the same form; `place`, of 0 to 1, is where. Of an empty one, itself."""
    items = list(result)
    if items:
        at = int(place * len(items))
        item = items[at]
        items[at] = 1 - item if isinstance(item, int) else bytes([item[0] ^ 1]) + item[1:]
    return items
