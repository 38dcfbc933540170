"""JSON as a browser reads it."""

import json
from typing import Any


def strict_json(body: bytes) -> Any:
    """NaN and infinities are no JSON."""

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON")

    return json.loads(body, parse_constant=refuse)
