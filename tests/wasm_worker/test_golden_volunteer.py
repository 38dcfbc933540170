"""What the page is held to is what this daemon says now, and takes."""

import json
from pathlib import Path

import pytest

from daa_dag import canonical
from daa_dag.errors import NotCanonical
from daa_node.identity.keys import verify_once
from daa_node.identity.volunteer import HELLO_CONTEXT
from tests.wasm_worker.golden_volunteer import KEYS, REFUSED, VALUES, golden

GOLDEN = json.loads((Path(__file__).parents[1] / "golden/volunteer.json").read_text())


def test_the_daemon_still_says_what_the_page_is_held_to() -> None:
    assert golden() == {key: value for key, value in GOLDEN.items() if key != "signature"}


def test_the_signature_of_the_file_is_good() -> None:
    said, signature = bytes.fromhex(GOLDEN["hello_signs"]), bytes.fromhex(GOLDEN["signature"])
    assert verify_once(KEYS.ml_dsa_public_key, signature, said, HELLO_CONTEXT)


@pytest.mark.parametrize("payload", REFUSED, ids=lambda payload: payload[:8].hex() or "empty")
def test_what_the_page_refuses_the_daemon_refuses(payload: bytes) -> None:
    with pytest.raises(NotCanonical):
        canonical.decode(payload, 1024)


def test_the_daemon_reads_its_own_values() -> None:
    for value, payload in zip(VALUES, GOLDEN["values"], strict=True):
        assert canonical.decode(bytes.fromhex(payload), 1 << 20) == value
    canonical.decode(bytes.fromhex(GOLDEN["deepest"]), 1024)
