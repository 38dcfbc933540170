"""Holds answers of the API against the document in which it describes itself."""

import json
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

from jsonschema import Draft202012Validator

from daa_node.api.description import described
from daa_node.api.replies import JSON, TEXT, said
from daa_node.api.routes import Asked, Route
from daa_node.wire.http_messages import Reply
from tests.daa_node.api.strict_json import strict_json

# Before any row is looked for, or where there is none.
WITHOUT_A_ROW = {400, 401, 403, 404, 405, 421}


class Described:
    """One document."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self.document = document
        self._validator = cache(self._made)

    def check(self, method: str, path: str, status: int, content_type: str, body: bytes) -> None:
        """An AssertionError or jsonschema's ValidationError where it is none of those answers."""
        operation = self._operation("GET" if method == "HEAD" else method, path)
        if operation is None:
            assert status in WITHOUT_A_ROW, (method, path, status)
            assert content_type == TEXT
            return
        told = operation["responses"]
        if status == 304:  # the visitor has the file already
            return
        assert str(status) in told, (method, path, status, sorted(told))
        if status != 200:
            assert content_type == TEXT, (path, status)
            return
        ((described_type, content),) = told["200"]["content"].items()
        assert described_type in (content_type, "*/*"), (path, content_type)
        if content_type == JSON:
            self._validator(json.dumps(content["schema"])).validate(strict_json(body))

    def _operation(self, method: str, path: str) -> dict[str, Any] | None:
        for template, operations in self.document["paths"].items():
            begin, rest, _ = template.partition("{rest}")
            if path == template or (rest and path.startswith(begin)):
                found: dict[str, Any] | None = operations.get(method.lower())
                return found if method.isupper() else None
        return None

    def _made(self, schema: str) -> Draft202012Validator:
        return Draft202012Validator(
            {**json.loads(schema), "components": self.document["components"]}
        )


def described_by(routes: tuple[Route, ...]) -> Described:
    """By a document that is made once for all desks whose rows differ in who answers alone."""
    return _described(tuple(replace(route, answer=_nobody) for route in routes))


@cache
def _described(routes: tuple[Route, ...]) -> Described:
    return Described(described(routes))


async def _nobody(_: Asked) -> Reply:
    return said(503, "nobody answers")
