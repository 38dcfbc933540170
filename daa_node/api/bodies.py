"""What a request brings with it: JSON alone, of a kind that its route names, bounded and strict.

A page elsewhere can send text, forms and files to us without asking first; for JSON its browser
asks, and hears no. So a body in any other type is none, whatever it says.
"""

import json
import re
from collections.abc import Sequence
from math import isfinite
from typing import Any

from pydantic import BaseModel, ValidationError

from daa_node.api.replies import said
from daa_node.wire.http_messages import Reply, Visit
from daa_node.wire.limits import KIB

BODY_BYTES_MAX = 64 * KIB  # as on the control socket
_JSON = re.compile(r"application/json *(; *charset=\"?utf-8\"?)? *", re.IGNORECASE)


async def read_body(visit: Visit, kind: type[BaseModel] | None) -> BaseModel | Reply | None:
    """What it brings, or why that is refused; the words repeat nothing of it.

    `kind` None: it has to bring nothing. Raises what `visit.read_body` raises.
    """
    if kind is None:
        return said(413, "a request has no body here") if visit.has_body else None
    if not _JSON.fullmatch(visit.content_type):
        return said(415, "send Content-Type: application/json")
    payload = await visit.read_body(BODY_BYTES_MAX)
    if payload is None:
        return said(413, f"a body has {BODY_BYTES_MAX} bytes at the most")
    try:
        value = json.loads(
            payload.decode(),
            object_pairs_hook=_object,
            parse_constant=_refuse_constant,
            parse_float=_number,
        )
    except (ValueError, RecursionError):
        return said(400, "the body is no JSON in UTF-8, or names something twice")
    try:
        return kind.model_validate(value, strict=True)
    except ValidationError as invalid:
        first = invalid.errors(include_url=False, include_input=False)[0]
        return said(400, f"{_place(first['loc'], kind)}: {first['msg']}")


def _place(loc: Sequence[int | str], kind: type[BaseModel]) -> str:
    """Of a mistake, in our words: keys that are not known, or lie deeper, are the visitor's."""
    if not loc:
        return "the body"
    return str(loc[0]) if loc[0] in kind.model_fields else "a key that is not known"


def _object(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key comes twice")
    return found


def _number(text: str) -> float:
    value = float(text)
    if not isfinite(value):
        raise ValueError("a number is beyond what can be told in JSON")
    return value


def _refuse_constant(_: str) -> None:
    raise ValueError("NaN and infinities are no JSON")
