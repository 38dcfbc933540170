"""Classes of nodes: how many are alike, what they do, how fast they are and where they stand."""

from collections.abc import Iterator, Sequence
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from daa_node.network.config import (
    CAP_MBIT_S_LEAST,
    CAP_MBIT_S_MOST,
    DATA_GB_A_DAY_MOST,
    NetworkConfig,
)
from simnet.world.releases import THIS_RELEASE, Speaks, UpgradeConfig

NODES_MAX = 20_000
Nat = Literal[
    "cone",  # one outside port for each inside one, whomever it goes to
    "symmetric",  # another one for each destination
    "upnp",  # as cone, and it lets others in where it is asked to
    "cgnat",  # two boxes, and an address that all homes of the carrier share
]


class LimitsConfig(BaseModel):
    """What their operators let their bulk have: as in a node's settings, under `network`."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    upload_mbit_s: float | None = Field(
        None, ge=CAP_MBIT_S_LEAST, le=CAP_MBIT_S_MOST, description="network.upload_mbit_s"
    )
    download_mbit_s: float | None = Field(
        None, ge=CAP_MBIT_S_LEAST, le=CAP_MBIT_S_MOST, description="network.download_mbit_s"
    )
    data_gb_a_day: float | None = Field(
        None, gt=0, le=DATA_GB_A_DAY_MOST, description="network.data_gb_a_day"
    )


class WorkersConfig(BaseModel):
    """What their operators let their machines train: as in a node's settings, under `trainer`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    contribute: bool = Field(True, description="trainer.contribute; false: it never trains")


class NodesConfig(BaseModel):
    """Some nodes that are alike."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    name: str = Field("node", pattern="^[a-z0-9][a-z0-9-]{0,30}$", description="of the class")
    count: int = Field(4, ge=1, le=NODES_MAX, description="how many there are")
    role: Literal["validator", "trainer", "newcomer", "observer"] = Field(
        "validator", description="newcomer: a trainer that the genesis does not name, and enrolls"
    )
    stake: int = Field(1, ge=1, le=2**40, description="what a validator's vote weighs")
    speed: float = Field(1.0, gt=0, le=1000, description="inner steps, relative to the job's")
    up_mbit_s: float | None = Field(None, gt=0, description="of its access link; None: topology's")
    down_mbit_s: float | None = Field(None, gt=0, description="as up_mbit_s")
    limits: LimitsConfig | None = Field(None, description="below what the link bears; of daemons")
    trainer: WorkersConfig = Field(WorkersConfig(), description="of daemons that vote")
    nat: Nat | None = Field(None, description="what each of them is behind; None: the internet")
    relay: bool = Field(False, description="whether its daemons relay for who cannot be dialled")
    speaks: Speaks = Field(THIS_RELEASE, description="protocol versions, the least and the most")
    upgrade: UpgradeConfig | None = Field(None, description="to another release, while it runs")


def with_limits(network: NetworkConfig, limits: LimitsConfig | None) -> NetworkConfig:
    """A node's settings, as its operator has them now."""
    return network if limits is None else network.model_copy(update=limits.model_dump())


def newcomers_of(classes: Sequence[NodesConfig]) -> frozenset[int]:
    """The numbers of those that enroll while the run lasts."""
    roles = [group.role for group in classes for _ in range(group.count)]
    return frozenset(node for node, role in enumerate(roles) if role == "newcomer")


def misplaced(classes: Sequence[NodesConfig], fidelity: str) -> Iterator[tuple[int, str, str]]:
    """What a class says that this way to run nodes does without: its number, the key, and why."""
    for number, group in enumerate(classes):
        for key in ("nat", "relay"):
            if getattr(group, key) and fidelity != "process":
                said = f"`{key}` takes `fidelity: process`: only there are packets translated"
                yield number, key, said
        for key in ("speaks", "upgrade"):
            is_given = getattr(group, key) != NodesConfig.model_fields[key].default
            if is_given and fidelity not in ("light", "trio"):
                said = f"`{key}` takes `fidelity: light` or `trio`: daemons in virtual time"
                yield number, key, said
        if group.limits is not None and fidelity == "heap":
            yield number, "limits", "`limits` are settings of daemons, of which the heap has none"
        if group.trainer.contribute:
            continue
        if fidelity == "heap":
            yield number, "trainer", "`trainer` is a setting of daemons, of which the heap has none"
        elif group.role != "validator":
            said = f"a class with `role: {group.role}` has nothing to do where it never trains"
            yield number, "trainer", said
