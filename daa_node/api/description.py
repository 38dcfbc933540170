"""What may be asked over HTTP, for programs to read: OpenAPI 3.1, made of the route table."""

import json
import re
from collections.abc import Sequence
from typing import Any

from pydantic.json_schema import models_json_schema

from daa_node.api.bodies import BODY_BYTES_MAX
from daa_node.api.replies import JSON, replied
from daa_node.api.routes import Asked, Parameter, Route
from daa_node.api.tokens import Right
from daa_node.wire.http_messages import Reply

PATH = "/openapi.json"
API_VERSION = "1"  # of the paths that begin with /v1
SCHEMAS = "#/components/schemas/"
_RIGHTS = {Right.READ: "read", Right.ADMIN: "admin"}
_REFUSALS = {
    "400": "The query or the body is not what this path takes.",
    "401": "There is no token, or a wrong one.",
    "403": "The token has not this right, or the page of another site asks.",
    "404": "This node has no such thing: the text says why.",
    "409": "It cannot be done as things stand: the text says why.",
    "413": f"There is a body where none belongs, or one of more than {BODY_BYTES_MAX} bytes.",
    "415": "The body is not said to be application/json.",
    "421": "The Host is none of ours.",
    "500": "The answer would be too large: ask `daa-node` for it.",
    "503": "There is no answer now: the text says why.",
}


def description_route(routes: Sequence[Route]) -> Route:
    """The row that tells of these, and of itself."""

    async def describe(_: Asked) -> Reply:
        return replied(200, body, JSON)

    meaning = "This document."
    row = Route("GET", PATH, Right.READ, describe, meaning=meaning)
    body = json.dumps(described((*routes, row)), separators=(",", ":")).encode() + b"\n"
    return row


def described(routes: Sequence[Route]) -> dict[str, Any]:
    """The document."""
    kinds = {kind for route in routes for kind in (route.takes, route.tells) if kind is not None}
    _, schemas = models_json_schema(
        [(kind, "validation") for kind in sorted(kinds, key=lambda kind: kind.__name__)],
        ref_template=f"{SCHEMAS}{{model}}",
    )
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        operations = paths.setdefault(route.path.replace("*", "{rest}"), {})
        operations[route.method.lower()] = _operation(route)
    refusals = {
        status: {"description": words, "content": {"text/plain": {"schema": {"type": "string"}}}}
        for status, words in _REFUSALS.items()
    }
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "The HTTP API of one daa-compute daemon",
            "version": API_VERSION,
            "description": "See docs/operator-api.md. HEAD is answered wherever GET is.",
        },
        "paths": paths,
        "components": {
            "schemas": schemas.get("$defs", {}),
            "responses": refusals,
            "securitySchemes": {
                name: {
                    "type": "http",
                    "scheme": "bearer",
                    "description": f"The token in the file api-{name}.token of the node.",
                }
                for name in _RIGHTS.values()
            },
        },
    }


def _operation(route: Route) -> dict[str, Any]:
    refused = ["400", "421", "403", "413", "500", "503"]
    operation: dict[str, Any] = {
        "operationId": _id_of(route),
        "summary": route.meaning or f"{route.method} {route.path}",
        "security": [{_RIGHTS[right]: []} for right in Right if right >= max(route.right, 1)]
        if route.right is not Right.NOTHING
        else [],
        "parameters": [_parameter(one) for one in route.params],
    }
    if route.path.endswith("/*"):
        rest = {"name": "rest", "in": "path", "required": True, "schema": {"type": "string"}}
        operation["parameters"].append(rest)
    if route.right is not Right.NOTHING:
        refused.append("401")
    if route.may_lack:
        refused.append("404")
    if route.changes:
        refused.append("409")
    if route.takes is not None:
        refused.append("415")
        schema = {"$ref": f"{SCHEMAS}{route.takes.__name__}"}
        operation["requestBody"] = {"required": True, "content": {JSON: {"schema": schema}}}
    schema_of = {"type": "object"} if route.gives == JSON else {"type": "string"}
    if route.tells is not None:
        schema_of = {"$ref": f"{SCHEMAS}{route.tells.__name__}"}
    operation["responses"] = {
        "200": {
            "description": "The answer.",
            "content": {route.gives: {"schema": schema_of}},
        },
        **{status: {"$ref": f"#/components/responses/{status}"} for status in sorted(refused)},
    }
    return operation


def _id_of(route: Route) -> str:
    words = re.findall(r"[a-z0-9]+", route.path) or ["root"]
    return "_".join([route.method.lower(), *words])


def _parameter(parameter: Parameter) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string", "pattern": "^[a-z0-9_.-]{1,32}$"}
    if isinstance(parameter.default, int):
        schema = {"type": "integer", "minimum": 0, "maximum": parameter.most}
    return {
        "name": parameter.name,
        "in": "query",
        "required": False,
        "description": parameter.meaning,
        "schema": {**schema, "default": parameter.default},
    }
