"""Who says of itself that it never trains."""

import time
from typing import cast

from daa_dag.ids import NodeId
from daa_node.config import NodeConfig
from daa_node.identity.keys import NodeKeys
from daa_node.identity.record import NodeRecord, Role, sign_record
from daa_node.identity.validators import Validators
from daa_node.network.config import NetworkConfig
from daa_node.network.contacts import NEVER_TRAINS, Contacts
from daa_node.network.directory import Directory
from daa_node.observability.events import EventLog
from daa_node.reach_wiring import capabilities_of
from daa_node.seams import Transport
from daa_node.training.config import TrainerConfig

KEYS = [NodeKeys.from_seed(bytes([number + 90]) * 32) for number in range(2)]
LIGHT = NodeConfig(trainer=TrainerConfig(contribute=False), network=NetworkConfig(relay=True))


def test_only_whose_own_record_says_so_is_not_waited_for() -> None:
    directory = Directory(lambda: 0.0, {}, EventLog(time.time_ns))
    now_ns = time.time_ns()
    for keys, config in zip(KEYS, (NodeConfig(), LIGHT), strict=True):
        record = NodeRecord(
            keys.ml_dsa_public_key,
            keys.ml_kem_public_key,
            keys.peer_id,
            (),
            Role.CLOUD,
            capabilities_of(config),
            1,
            now_ns,
            now_ns + 10**9,
        )
        directory.learn(sign_record(record, keys))  # refuses capabilities that do not ascend
    contacts = Contacts(KEYS[0].node_id, cast(Validators, None), directory, cast(Transport, None))
    stranger = NodeId(b"s" * 32)
    asked = {stranger, *(keys.node_id for keys in KEYS)}
    assert contacts.who_never_train(asked) == {KEYS[1].node_id}
    assert contacts.who_never_train({stranger}) == set()


def test_what_a_node_can_is_told_in_order() -> None:
    assert capabilities_of(NodeConfig()) == ("validator",)
    assert capabilities_of(LIGHT) == (NEVER_TRAINS, "relay", "validator")
