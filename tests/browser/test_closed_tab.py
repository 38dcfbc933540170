"""The piece of a volunteer whose tab is gone goes to another one, and is finished there."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from subprocess import PIPE
from typing import Any

import numpy as np
import pytest
import trio

from daa_node.adapters.disk_blob_store import DiskBlobStore
from daa_node.gateway.piece import Piece
from daa_node.gateway.task_desk import Evidence
from daa_node.gateway.training_pieces import Draw
from daa_node.observability import events
from daa_node.observability.events import Event, EventLog
from daa_node.spot_checks import pieces
from daa_node.spot_checks.canonical import canonical_model
from daa_node.training.model_config import ModelConfig
from daa_node.wire.volunteer_messages import TaskKind
from tests.browser.chromium import chromium
from tests.browser.gateway_alone import gateway_alone

ROOT = Path(__file__).parents[2]
MODEL = ModelConfig(kind="mlp", width=512, depth=1)
ROWS = 2_048  # with this model a second of a page
WITHIN_S = 240.0
FINISHED_S = 60.0  # half of what the tab that is gone would have had for it


class OnePiece:
    """A source: one piece, once somebody may have it."""

    kind = TaskKind.LOSS

    def __init__(self) -> None:
        self.has_some = False

    async def make(self, draw: Draw) -> Piece | None:
        self.has_some = False
        random = np.random.default_rng(1)
        model = canonical_model(MODEL)
        weights_D = random.integers(-(1 << 22), 1 << 22, MODEL.parameter_count(), np.int32)
        inputs = random.random((ROWS, model.tensors[0][1][0]), np.float32)
        targets = random.integers(0, 10, ROWS, np.int32)
        words = [pieces.model_words(model), ROWS]
        blobs = [array.tobytes() for array in (weights_D, inputs, targets)]
        return Piece(self.kind, {}, words, blobs)


@pytest.mark.parametrize("how", ["closed", "crashed"])
async def test_the_piece_of_a_tab_that_is_gone_is_finished_by_another_volunteer(
    tmp_path: Path, how: str
) -> None:
    found, told, source = list[Evidence](), list[Event](), OnePiece()
    log, store = EventLog(lambda: 0, told.append), DiskBlobStore(tmp_path)
    script = str(ROOT / "wasm_worker/test/closed_tab.js")
    async with gateway_alone(store, [source], log, found.append) as address:
        command = ["node", script, address, chromium(), how]
        with trio.fail_after(WITHIN_S):
            tabs = await trio.lowlevel.open_process(command, stdin=PIPE, stdout=PIPE)
            assert tabs.stdin is not None
            assert tabs.stdout is not None
            try:
                words = _lines(tabs.stdout)
                assert await anext(words) == "ready"
                source.has_some = True
                gone = json.loads(await anext(words))
                with trio.fail_after(FINISHED_S):
                    while not found:
                        await trio.sleep(0.2)
                await trio.sleep(1.0)  # what it is told last is on its way
                await tabs.stdin.aclose()
                other = json.loads(await anext(words))
            finally:
                tabs.kill()
    assert gone["tiles"]["This visit"] == "0"
    assert other["tiles"]["This visit"] == "1"
    assert other["tiles"]["Right"] == "100 %"
    assert len(found) == 1
    came = {event["volunteer"] for event in told if event["name"] == events.VOLUNTEER_CAME}
    assert came == {gone["name"], other["name"]}
    left = [event["volunteer"] for event in told if event["name"] == events.VOLUNTEER_LEFT]
    assert left[0] == gone["name"]


async def _lines(stream: Any) -> AsyncIterator[str]:
    rest = b""
    async for part in stream:
        *whole, rest = (rest + part).split(b"\n")
        for line in whole:
            yield line.decode()
