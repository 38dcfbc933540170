"""The kinds of adversary that lie to consensus, by the name that a scenario gives them."""

from collections.abc import Callable, Mapping
from typing import Final

from simnet.adversaries.babbler import Babbler
from simnet.adversaries.conduct import Conduct
from simnet.adversaries.conflicter import Conflicter
from simnet.adversaries.double_offerer import DoubleOfferer
from simnet.adversaries.equivocator import Equivocator
from simnet.adversaries.false_acker import FalseAcker
from simnet.adversaries.false_executor import FalseExecutor
from simnet.adversaries.forger import Forger
from simnet.adversaries.puppet import Puppet
from simnet.adversaries.staller import Staller
from simnet.adversaries.sybil import Sybil
from simnet.adversaries.twin import Twin
from simnet.adversaries.withholder import Withholder
from simnet.scenario import AdversaryKind

CONDUCTS: Final[Mapping[AdversaryKind, Callable[[], Conduct]]] = {
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
