"""The kinds of adversary that lie to consensus, by the name that a scenario gives them."""

from collections.abc import Callable, Mapping
from typing import Final

from simnet.world.adversaries.babbler import Babbler
from simnet.world.adversaries.behaviour import Behaviour
from simnet.world.adversaries.conflicter import Conflicter
from simnet.world.adversaries.double_offerer import DoubleOfferer
from simnet.world.adversaries.equivocator import Equivocator
from simnet.world.adversaries.false_acker import FalseAcker
from simnet.world.adversaries.false_executor import FalseExecutor
from simnet.world.adversaries.forger import Forger
from simnet.world.adversaries.puppet import Puppet
from simnet.world.adversaries.staller import Staller
from simnet.world.adversaries.sybil import Sybil
from simnet.world.adversaries.twin import Twin
from simnet.world.adversaries.withholder import Withholder
from simnet.world.scenario import AdversaryKind

BEHAVIOURS: Final[Mapping[AdversaryKind, Callable[[], Behaviour]]] = {
    "equivocator": Equivocator,
    "twin": Twin,
    "conflicter": Conflicter,
    "withholder": Withholder,
    "false_acker": FalseAcker,
    "double_offerer": DoubleOfferer,
    "false_executor": FalseExecutor,
    "staller": Staller,
    "sybil": Sybil,
    "babbler": Babbler,
    "forger": Forger,
    "puppet": Puppet,
}
