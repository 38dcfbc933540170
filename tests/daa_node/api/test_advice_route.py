"""The dashboard reads the same table as doctor, and asks for no event that it does not have."""

import re
from pathlib import Path

import daa_node
from daa_node.advice.of_events import EVENTS
from daa_node.advice.table import OF_EVENTS, OF_REFUSALS
from daa_node.api.advice_route import advice_route
from tests.daa_node.api.operator_desks import TOKENS, operator_desk
from tests.daa_node.api.strict_json import strict_json
from tests.daa_node.api.test_command_routes import visit

PAGE = Path(daa_node.__file__).parents[1] / "dashboard" / "src"


async def test_the_whole_table_is_told_to_who_may_read() -> None:
    desk = operator_desk(more=(advice_route(),))
    asked = visit("/v1/advice", method="GET", has_body=False, authorization=f"Bearer {TOKENS.read}")
    answer = strict_json((await desk.answer(asked)).body)
    assert answer["events"] == {row.key: {"means": row.means, "do": row.do} for row in EVENTS}
    assert answer["refusals"].keys() == OF_REFUSALS.keys()
    assert "full" in answer["volunteers"]
    stranger = visit("/v1/advice", method="GET", has_body=False, authorization="")
    assert (await desk.answer(stranger)).status == 401


def test_the_page_asks_for_events_that_have_advice() -> None:
    asked = re.findall(r'adviceOn\("([a-z_]+)"', (PAGE / "components.ts").read_text())
    assert len(asked) >= 6
    assert [name for name in asked if not OF_EVENTS[name].do] == []
