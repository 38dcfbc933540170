"""The OpenAPI document says what the routes do: asked in its words, they answer as it says."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from openapi_spec_validator import OpenAPIV31SpecValidator

from daa_node.api.description import description_route
from daa_node.api.event_stream import EventStream
from daa_node.api.operator_desk import OperatorDesk
from daa_node.api.replies import TEXT, said
from daa_node.api.routes import Asked, Parameter, Route
from daa_node.api.settings_routes import Settings, settings_routes
from daa_node.api.tokens import Right
from daa_node.observability.events import EventLog
from daa_node.wire.http_messages import Reply, Visit
from tests.daa_node.api.operator_desks import TOKENS, operator_desk, rows
from tests.daa_node.api.test_command_routes import visit

BODIES: dict[str, dict[str, Any]] = {
    "Nothing": {},
    "Approval": {"id": "ab" * 32},
    "Change": {"changes": {"log.files_max": 9}, "digest": "d" * 64},
}


async def _settings(*_: Any) -> Mapping[str, Any]:
    changed = {"confirmed": False, "diff": [], "needs_restart": []}
    return {"file": "config.yaml", "digest": "d" * 64, "settings": [], **changed}


async def _page(_: Asked) -> Reply:
    return said(200, "a page")


MORE = (
    *settings_routes(Settings(_settings, _settings)),
    *EventStream(EventLog(lambda: 0), "1f00c2ab").routes(),
    Route("GET", "/files/*", Right.NOTHING, _page, gives=TEXT),
    Route("GET", "/words", Right.READ, _page, (Parameter("name", "", "all"),), gives=TEXT),
)
DESCRIPTION = description_route(rows(more=MORE))


def desk() -> OperatorDesk:
    return operator_desk(more=(*MORE, DESCRIPTION))


async def ask(asked: Visit) -> Reply:
    return await desk().answer(asked)


async def document() -> dict[str, Any]:
    reply = await ask(visit("/openapi.json", method="GET", has_body=False))
    assert reply.status == 200
    return dict(json.loads(reply.body))


def operations(document: Mapping[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, by_method in document["paths"].items():
        for method, operation in by_method.items():
            yield path, method.upper(), operation


def references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if "$ref" in value:
            yield value["$ref"]
        for inner in value.values():
            yield from references(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from references(inner)


def asked_as_told(path: str, method: str, operation: Mapping[str, Any], token: str) -> Visit:
    """The request that the document describes."""
    kind = operation.get("requestBody", {}).get("content", {}).get("application/json")
    body = (
        b"" if kind is None else json.dumps(BODIES[kind["schema"]["$ref"].split("/")[-1]]).encode()
    )
    return visit(
        path.replace("{rest}", "a/b.txt"),
        body,
        method=method,
        has_body=kind is not None,
        authorization=f"Bearer {token}" if token else "",
    )


async def test_others_find_nothing_wrong_with_it() -> None:
    told = await document()
    validator = OpenAPIV31SpecValidator(told)
    assert [str(fault) for fault in validator.iter_errors()] == []
    del told["paths"]["/v1/status"]["get"]["responses"]
    told["paths"]["/v1/peers"]["get"]["parameters"] = [{"name": "x", "in": "nowhere"}]
    assert not OpenAPIV31SpecValidator(told).is_valid()


async def test_each_row_is_in_it_and_nothing_else() -> None:
    told = await document()
    assert told["openapi"] == "3.1.0"
    assert {(path.replace("{rest}", "*"), method) for path, method, _ in operations(told)} == {
        (route.path, route.method) for route in (*rows(more=MORE), DESCRIPTION)
    }
    ids = [operation["operationId"] for _, _, operation in operations(told)]
    assert len(ids) == len(set(ids))


async def test_what_it_points_to_is_there() -> None:
    told = await document()
    found = set(references(told))
    assert "#/components/schemas/Approval" in found
    for reference in found:
        place: Any = told
        for step in reference.removeprefix("#/").split("/"):
            place = place[step]
        assert place


async def test_asked_as_it_says_each_answers_what_it_says() -> None:
    for path, method, operation in operations(await document()):
        reply = await ask(asked_as_told(path, method, operation, TOKENS.admin))
        assert reply.status == 200, path
        (media_type,) = operation["responses"]["200"]["content"]
        assert dict(reply.headers)["Content-Type"] == media_type, path
        if media_type == "application/json":
            assert isinstance(json.loads(reply.body), dict)


async def test_the_rights_are_those_that_it_names() -> None:
    for path, method, operation in operations(await document()):
        names = [name for one in operation["security"] for name in one]
        for token, name in (("", ""), (TOKENS.read, "read"), (TOKENS.admin, "admin")):
            reply = await ask(asked_as_told(path, method, operation, token))
            is_let_in = not names or name in names
            assert (reply.status == 200) is is_let_in, (path, name)
            if not is_let_in:
                assert str(reply.status) in operation["responses"], (path, reply.status)


async def test_parameters_have_the_bounds_that_it_names() -> None:
    seen = 0
    for path, method, operation in operations(await document()):
        for one in operation["parameters"]:
            if one["in"] != "query":
                continue
            schema, seen = one["schema"], seen + 1
            right = [str(schema["default"])]
            wrong = ["A", "x" * 33]
            if schema["type"] == "integer":
                right += [str(schema["minimum"]), str(schema["maximum"])]
                wrong += [str(schema["maximum"] + 1), "-1", "x"]
            for value, status in [(v, 200) for v in right] + [(v, 400) for v in wrong]:
                asked = asked_as_told(
                    f"{path}?{one['name']}={value}", method, operation, TOKENS.read
                )
                assert (await ask(asked)).status == status, (path, value)
    assert seen >= 2


@pytest.mark.parametrize("kind", sorted(BODIES))
async def test_a_key_that_it_does_not_name_is_refused(kind: str) -> None:
    told = await document()
    assert told["components"]["schemas"][kind]["additionalProperties"] is False
    assert set(BODIES[kind]) >= set(told["components"]["schemas"][kind].get("required", []))
