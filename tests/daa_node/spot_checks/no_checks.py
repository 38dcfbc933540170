"""Spot checks that draw and find nothing, for tests of what goes on around them."""

from collections.abc import Sequence
from typing import cast

from daa_dag.ids import Digest, NodeId
from daa_node.observability.events import EventLog
from daa_node.seams import Trainer
from daa_node.spot_checks.calibration import Calibration
from daa_node.spot_checks.checks import CheckRules, Claims, SpotChecks
from daa_node.spot_checks.copies import MILLIONTHS, Likeness, Update
from daa_node.spot_checks.lot import Lot
from daa_node.spot_checks.usefulness import Usefulness


def no_checks() -> SpotChecks:
    rules = CheckRules(Lot((0, 1), 1), 0, (1, 1000), ())
    trainer, claims = cast(Trainer, None), cast(Claims, None)
    me = NodeId(bytes(32))
    calibration = Calibration(me, rules.tolerance, lambda: (), lambda: 0)
    return SpotChecks(me, rules, trainer, claims, calibration, EventLog(lambda: 0))


def nothing_measured(
    round_number: int, updates: Sequence[Update], seed: Digest
) -> Sequence[Usefulness]:
    return ()


def nothing_alike(updates: Sequence[Update], seed: Digest, liars_max: int) -> Likeness:
    apart = [[MILLIONTHS] * len(updates) for _ in updates]
    return Likeness(apart, liars_max)
