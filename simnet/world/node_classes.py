"""Classes of nodes: how many are alike, what they do, how fast they are and where they stand."""

from collections.abc import Sequence
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

NODES_MAX = 20_000
Nat = Literal[
    "cone",  # one outside port for each inside one, whomever it goes to
    "symmetric",  # another one for each destination
    "upnp",  # as cone, and it lets others in where it is asked to
    "cgnat",  # two boxes, and an address that all homes of the carrier share
]


class NodesConfig(BaseModel):
    """Some nodes that are alike."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    name: str = Field("node", pattern="^[a-z0-9][a-z0-9-]{0,30}$", description="of the class")
    count: int = Field(4, ge=1, le=NODES_MAX)
    role: Literal["validator", "trainer", "newcomer", "observer"] = Field(
        "validator", description="newcomer: a trainer that the genesis does not name, and enrolls"
    )
    stake: int = Field(1, ge=1, le=2**40)
    speed: float = Field(1.0, gt=0, le=1000, description="inner steps, relative to the job's")
    up_mbit_s: float | None = Field(None, gt=0, description="of its access link; None: topology's")
    down_mbit_s: float | None = Field(None, gt=0)
    nat: Nat | None = Field(None, description="what each of them is behind; None: the internet")
    relay: bool = Field(False, description="whether its daemons relay for who cannot be dialled")


def newcomers_of(classes: Sequence[NodesConfig]) -> frozenset[int]:
    """The numbers of those that enroll while the run lasts."""
    roles = [group.role for group in classes for _ in range(group.count)]
    return frozenset(node for node, role in enumerate(roles) if role == "newcomer")
