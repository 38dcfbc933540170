"""Which release each node runs, and when its operator gives it another one.

A release is told by the protocol versions that it speaks, which is all that others see of it. The
nodes of a class are upgraded one after the other: each is stopped, is away for a while, and comes
back with what it had on its disk.
"""

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Protocol

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from daa_consensus.committee import VERSION_MAX
from daa_node.wire.protocols import OURS, Versions

Number = Annotated[int, Field(ge=0, le=VERSION_MAX)]


def _ascending(pair: tuple[int, int]) -> tuple[int, int]:
    if pair[0] > pair[1]:
        raise ValueError("the least version comes first, then the most")
    return pair


Speaks = Annotated[tuple[Number, Number], AfterValidator(_ascending)]
THIS_RELEASE = (OURS.least, OURS.most)
NEXT_RELEASE = (OURS.least, OURS.most + 1)


class UpgradeConfig(BaseModel):
    """Another release for the nodes of a class, one after the other."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    speaks: Speaks = Field(description="what they speak from then on, least and most")
    at_s: float = Field(ge=0, le=1e6, description="when the first of them is stopped")
    every_s: float = Field(2.0, ge=0, le=1e6, description="until the next one is")
    away_s: float = Field(1.0, gt=0, le=1e6, description="for so long each is stopped")


class Upgraded(Protocol):
    """A class of nodes, as far as releases go."""

    @property
    def count(self) -> int: ...

    @property
    def speaks(self) -> tuple[int, int]: ...

    @property
    def upgrade(self) -> UpgradeConfig | None: ...


def stops_of(classes: Sequence[Upgraded]) -> Iterator[dict[str, Any]]:
    """Each upgrade as the fault that it looks like from outside, in the order of the nodes."""
    first = 0
    for group in classes:
        upgrade = group.upgrade
        if upgrade is not None:
            for place in range(group.count):
                at_s = upgrade.at_s + place * upgrade.every_s
                nodes = (first + place,)
                yield {"kind": "kill", "at_s": at_s, "for_s": upgrade.away_s, "nodes": nodes}
        first += group.count


def spoken_by(classes: Sequence[Upgraded], node: int, now_s: float) -> Versions:
    """What a daemon speaks that is started now on this node."""
    for group in classes:
        if node < group.count:
            upgrade = group.upgrade
            if upgrade is not None and now_s >= upgrade.at_s + node * upgrade.every_s:
                return Versions(*upgrade.speaks)
            return Versions(*group.speaks)
        node -= group.count
    return OURS
