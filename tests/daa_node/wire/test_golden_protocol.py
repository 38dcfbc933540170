"""What version 1 signs and names stays as it is, bit for bit.

A digest that changes here parts this release from every network that runs: old chains verify no
more, and older nodes refuse what this one says. Only another protocol version may do that.
"""

import json
from pathlib import Path
from typing import get_args

from daa_consensus.bft.messages import GenesisPayload, Payload
from daa_consensus.enrolment import TrainerAction
from daa_consensus.operations import Action
from daa_node.wire import protocols
from tests.daa_node.wire.golden_protocol import ACTIONS, PAYLOADS, TRAINER_ACTIONS, golden

GOLDEN = json.loads((Path(__file__).parents[2] / "golden" / "protocol.json").read_text())


def test_no_form_is_left_out() -> None:
    """Of what an action, a payload or a message's body may be: a new one has no digest yet."""
    assert {type(action) for action in ACTIONS} == {*get_args(Action)}
    assert {type(action) for action in TRAINER_ACTIONS} == {*get_args(TrainerAction)}
    assert {type(payload) for payload in PAYLOADS.values()} == {*get_args(Payload)} - {
        GenesisPayload
    }


def test_all_that_version_1_signs_and_names_is_as_it_was() -> None:
    assert protocols.PROTOCOL_VERSION_MIN == 1
    now = golden()
    assert {name for name in now.keys() | GOLDEN if now.get(name) != GOLDEN.get(name)} == set()
