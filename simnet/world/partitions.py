"""One partition in force: who cannot be heard by whom, and when, if it flaps."""

from dataclasses import dataclass

from simnet.world.faults import Edge, parts
from simnet.world.links import NS


@dataclass(frozen=True, slots=True)
class Partition:
    """Nodes that share a bit can talk."""

    sides: tuple[int, ...]  # [node] -> the bits of its parts
    one_way: bool  # only what the first part says is lost
    began_ns: int
    period_ns: int  # 0: it does not flap; else it cuts first, and every other period from then on

    def blocks(self, now_ns: int, sender: int, receiver: int) -> bool:
        """Whether what is said now is lost."""
        if self.period_ns and (now_ns - self.began_ns) // self.period_ns % 2:
            return False
        return self.parts_them(sender, receiver)

    def parts_them(self, sender: int, receiver: int) -> bool:
        """Whether it is between the two at all, flapping or not."""
        if self.sides[sender] & self.sides[receiver]:
            return False
        return not self.one_way or bool(self.sides[sender] & 1)

    def turns_ns(self, now_ns: int) -> int | None:
        """When it next opens or closes by itself; None if it does not flap."""
        if not self.period_ns:
            return None
        periods = (now_ns - self.began_ns) // self.period_ns + 1
        return self.began_ns + periods * self.period_ns


def partition_of(edge: Edge, count: int) -> Partition:
    """What a partition that begins does to `count` nodes."""
    fault = edge.fault
    sides = [0] * count
    for bit, part in enumerate(parts(fault.shape, edge.nodes, count)):
        for node in part:
            sides[node] |= 1 << bit
    period_ns = max(1, round(fault.period_s * NS)) if fault.shape == "flapping" else 0
    return Partition(tuple(sides), fault.shape == "one_way", edge.at_ns, period_ns)
