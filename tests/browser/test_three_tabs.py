"""Two honest contributions and five cheats, judged by three tabs of which one lies for a friend.

Each contribution is what a worker's own core trained and shows, honestly or as one of the cheats of
simnet; the gateway is a daemon's own, and makes its pieces of their segments as it does of those
that the lot gives it.
"""

import json
from collections import deque
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from subprocess import PIPE
from typing import Any

import trio

from daa_consensus.bft.limits import Limits
from daa_dag.ids import NodeId
from daa_node.adapters.disk_blob_store import DiskBlobStore
from daa_node.adapters.offload import ThreadOffload
from daa_node.checkpoints.chain import ChainStore
from daa_node.gateway.piece import Piece
from daa_node.gateway.task_desk import Evidence
from daa_node.gateway.training_pieces import Draw, Segments, Workshop
from daa_node.observability import events
from daa_node.observability.events import Event, EventLog
from daa_node.seams import SegmentOrder
from daa_node.spot_checks.config import SpotChecksConfig
from daa_node.training.boundaries import CLAIMED, Boundary
from daa_node.training.config import EvaluationConfig, InnerConfig, TrainingJob
from daa_node.training.data_config import DataConfig
from daa_node.training.datasets.catalogue import open_examples
from daa_node.training.model_config import ModelConfig
from daa_node.wire.volunteer_messages import TaskKind
from simnet.world.adversaries.cheating_core import CheatingCore
from simnet.world.scenario import Cheat
from tests.browser.chromium import chromium
from tests.browser.gateway_alone import gateway_alone
from tests.daa_node.checkpoints.little_chain import put_blob
from tests.daa_node.training.cheats import Stage, own

ROOT = Path(__file__).parents[2]
JOB = TrainingJob(
    model=ModelConfig(kind="mlp", width=32, depth=1),
    data=DataConfig(kind="digits"),
    inner=InnerConfig(lr=0.01, warmup_steps=5, total_steps=100, batch_size=32),
)
STEPS, EACH = 8, 4
# In the order in which they are judged. Once the liar has lied for its friend, two are left.
CONTRIBUTIONS: tuple[Cheat | None, ...] = (
    *(None, "stale_base", "skips_steps", "rounds_weights"),
    *(None, "doubles_gradients", "wrong_batches"),
)
FRIEND = CONTRIBUTIONS.index("rounds_weights")
WITHIN_S = 400.0
FRIEND_BYTES = 16  # of the end that it claims, for the liar to know it by


class Shelf:
    """A source: the segments of all contributions, in their order, as pieces for volunteers."""

    kind = TaskKind.SEGMENT

    def __init__(self, segments: Segments, orders: list[SegmentOrder]) -> None:
        self._segments = segments
        self._orders = deque(orders)

    @property
    def has_some(self) -> bool:
        return bool(self._orders)

    async def make(self, draw: Draw) -> Piece | None:
        await self._segments.keep(self._orders.popleft())
        return await self._segments.make(draw)


@dataclass
class Found:
    """What the gateway came to know, by author and step; and what it told."""

    evidence: dict[tuple[NodeId, int], Evidence]
    told: list[Event]

    def note(self, evidence: Evidence) -> None:
        about: Any = evidence.piece.about
        self.evidence[about["author"], about["step"]] = evidence

    def events(self, name: str) -> list[Event]:
        return [event for event in self.told if event["name"] == name]


def author(number: int) -> NodeId:
    return NodeId(bytes([number + 1]) * 32)


def contribution(stage: Stage, number: int) -> tuple[list[Boundary], list[SegmentOrder]]:
    """What this author shows of its second round, and how a checker is asked for its segments."""
    cheat, honest = CONTRIBUTIONS[number], stage.core()
    core = honest if cheat is None else CheatingCore(honest, cheat)
    shown, note = list[Boundary](), lambda boundary: shown.append(own(boundary))
    for round_ in (1, 2):
        shown.clear()
        order = stage.order(author(number), round=round_, merged_round=-1 if round_ == 1 else 1)
        base_D = stage.base_D(round_ % 2)
        sealed = core.train_and_seal(order, base_D, on_boundary=note)
        shown.append(own(sealed.end))
    roots = [boundary.manifest().root for boundary in shown]
    orders = [
        SegmentOrder(
            *(order.seed, order.round, order.author, order.first_step, step, EACH),
            *(roots[index], roots[index + 1], None),
        )
        for index, step in enumerate(stage.places[:-1])
    ]
    return shown, orders


async def test_two_honest_contributions_are_accepted_and_five_cheats_caught(
    tmp_path: Path,
) -> None:
    stage, store = Stage(JOB, tmp_path, STEPS, EACH), DiskBlobStore(tmp_path / "work")
    orders, friend = list[SegmentOrder](), b""
    for number in range(len(CONTRIBUTIONS)):
        shown, its_orders = contribution(stage, number)
        orders += its_orders
        for boundary in shown:
            blob = b"".join(boundary.parts())
            await put_blob(store, CLAIMED, boundary.manifest(), blob)
        if number == FRIEND:
            friend = b"".join(shown[1].parts())[:FRIEND_BYTES]
    shop = Workshop(
        *(ChainStore(store, store, Limits(1, 1)), JOB.model, JOB.updates.delta_format),
        *(JOB.inner, EvaluationConfig()),
        *(ThreadOffload(), partial(open_examples, JOB.data, JOB.model, tmp_path)),
    )
    shelf = Shelf(Segments(shop, True, SpotChecksConfig().tolerance), orders)
    found = Found({}, [])
    log = EventLog(lambda: 0, found.told.append)
    async with gateway_alone(store, [shelf], log, found.note) as address:
        seen = await three_tabs(address, friend, lambda: len(found.evidence) == len(orders))
    sound = [
        [found.evidence[author(number), step].is_sound for step in stage.places[:-1]]
        for number in range(len(CONTRIBUTIONS))
    ]
    accepted = [all(each) for each in sound]
    assert accepted == [cheat is None for cheat in CONTRIBUTIONS]
    # what volunteers find false the daemon has computed itself
    assert all(e.is_ours for e in found.evidence.values() if not e.is_sound)
    the_liar_is_out_and_nobody_else(seen, found)


def the_liar_is_out_and_nobody_else(seen: list[dict[str, Any]], found: Found) -> None:
    *honest, liar = seen
    assert liar["lies"] == 1
    assert liar["phase"] == "refused"
    assert liar["now"] == "Some results of this browser were not the right ones"
    erred = found.events(events.VOLUNTEER_ERRED)
    assert [event["volunteer"] for event in erred] == [liar["name"]]
    came = {event["volunteer"] for event in found.events(events.VOLUNTEER_CAME)}
    assert came == {each["name"] for each in seen}
    assert [each["tiles"]["Right"] for each in honest] == ["100 %", "100 %"]
    assert liar["tiles"]["Right"] not in ("100 %", honest[0]["tiles"]["Right"])


async def three_tabs(address: str, friend: bytes, is_enough: Any) -> list[dict[str, Any]]:
    """What each of them sees at the end: see wasm_worker/test/three_tabs.js."""
    script = str(ROOT / "wasm_worker/test/three_tabs.js")
    command = ["node", script, address, chromium(), friend.hex()]
    with trio.fail_after(WITHIN_S):
        tabs = await trio.lowlevel.open_process(command, stdin=PIPE, stdout=PIPE)
        assert tabs.stdin is not None
        assert tabs.stdout is not None
        try:
            while not is_enough() and tabs.returncode is None:
                await trio.sleep(0.2)
            await trio.sleep(1.0)  # what each was told last is on its way
            await tabs.stdin.aclose()
            told = b"".join([part async for part in tabs.stdout])
        finally:
            tabs.kill()
    seen: list[dict[str, Any]] = json.loads(told.splitlines()[-1])
    return seen
