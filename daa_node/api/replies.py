"""How answers to an operator's programs look: their headers, and what no browser does with them."""

import json
from collections.abc import Mapping
from math import isfinite
from typing import Any

from daa_node.wire.http_messages import Headers, Reply
from daa_node.wire.limits import MIB

ANSWER_BYTES_MAX = 16 * MIB  # as on the control socket
TEXT, JSON = "text/plain; charset=utf-8", "application/json"
# Of what is no page: should a browser show it all the same, it runs and loads nothing.
POLICY: Headers = (
    ("Cache-Control", "no-store"),
    ("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'; sandbox"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Referrer-Policy", "no-referrer"),
    ("X-Content-Type-Options", "nosniff"),
)


def told(answer: Mapping[str, Any], status: int = 200) -> Reply:
    """As JSON, in one line."""
    body = as_json(answer)
    if len(body) > ANSWER_BYTES_MAX:
        return said(500, f"the answer has {len(body)} bytes: ask `daa-node`")
    return replied(status, body, JSON)


def as_json(answer: Mapping[str, Any]) -> bytes:
    """A number that is none, like the loss of a spoilt model, becomes null: JSON has no NaN."""
    try:
        text = json.dumps(answer, separators=(",", ":"), allow_nan=False)
    except ValueError:
        text = json.dumps(with_nulls(answer), separators=(",", ":"), allow_nan=False)
    return text.encode() + b"\n"


def with_nulls(value: Any) -> Any:
    """The same, with null for each number that is none."""
    match value:
        case float():
            return value if isfinite(value) else None
        case dict():
            return {key: with_nulls(item) for key, item in value.items()}
        case list() | tuple():
            return [with_nulls(item) for item in value]
        case _:
            return value


def said(status: int, words: str, more: Headers = ()) -> Reply:
    """As one line of text."""
    return replied(status, f"{words}\n".encode(), more=more)


def replied(
    status: int,
    body: bytes,
    content_type: str = TEXT,
    more: Headers = (),
    policy: Headers = POLICY,
) -> Reply:
    """Any bytes. A page has a policy of its own."""
    headers = (("Content-Type", content_type), ("Content-Length", str(len(body))))
    return Reply(status, (*headers, *more, *policy), body)
