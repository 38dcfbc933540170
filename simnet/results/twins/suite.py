"""All scripts by name: those with a name of their own, the enumerated ones, and samples.

    four-2-17       the 17th of all scripts of two views at n=4
    sample-10-3     the third sample at n=10

Enumeration is bounded: all of two views at n=4 and 5; of three at n=4, and of two at n=7 with
two twins, where a twin leads each of them. Honest leaders of more views come with the samples.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from daa_node.errors import UserError
from simnet.results import pool
from simnet.results.twins.named import safe, unsafe
from simnet.results.twins.scripts import Script, enumerated, sampled
from simnet.results.twins.stage import Played, play

SAMPLED_NODES = (4, 5, 7, 10)
SAMPLED_VIEWS = 5
CHUNK_SCRIPTS = 8  # that a process takes at a time


@dataclass(frozen=True, slots=True)
class Family:
    """A set of scripts that can be listed in full."""

    name: str
    nodes: int
    twins: int
    views: int
    only_twins_lead: bool

    def scripts(self) -> list[Script]:
        found = enumerated(self.nodes, self.twins, self.views, self.only_twins_lead)
        return [replace(script, name=f"{self.name}-{script.name}") for script in found]


FAMILIES = (
    Family("four-2", 4, 1, 2, False),
    Family("four-3", 4, 1, 3, True),
    Family("five-2", 5, 1, 2, False),
    Family("seven-2", 7, 2, 2, True),
)


def named() -> list[Script]:
    return [*safe(), *unsafe()]


def samples(nodes: int, count: int) -> list[Script]:
    """Random scripts with as many twins as there may be."""
    found = [sampled(nodes, (nodes - 1) // 3, SAMPLED_VIEWS, seed) for seed in range(count)]
    return [replace(script, name=f"sample-{nodes}-{script.name}") for script in found]


def groups(nodes: int | None, everything: bool, sample: int) -> Iterator[tuple[str, list[Script]]]:
    """What a run plays, by the name of each part; `nodes` leaves out all other sizes.

    Raises UserError for a size that there is no script of.
    """
    if nodes not in (None, *SAMPLED_NODES):
        raise UserError(f"twins are played at n = {SAMPLED_NODES}, not {nodes}")
    wanted = [script for script in named() if nodes in (None, script.nodes)]
    if wanted:
        yield "named", wanted
    if everything:
        for family in FAMILIES:
            if nodes in (None, family.nodes):
                yield family.name, family.scripts()
    for size in SAMPLED_NODES:
        if nodes in (None, size):
            yield f"sample-{size}", samples(size, sample)


def script_named(name: str) -> Script:
    """Any script that there is. Raises UserError."""
    group, _, index = name.rpartition("-")
    found = [script for script in named() if script.name == name]
    for family in FAMILIES:
        if group == family.name and index.isdigit():
            found += family.scripts()[int(index) : int(index) + 1]
    for nodes in SAMPLED_NODES:
        if group == f"sample-{nodes}" and index.isdigit():
            found += samples(nodes, int(index) + 1)[-1:]
    if not found:
        raise UserError(f"no script of twins is called {name}")
    return found[0]


def play_all(scripts: Sequence[Script], jobs: int | None = None) -> Iterator[Played]:
    """In the order of `scripts`, over as many processes as there are cores."""
    return pool.each(play, scripts, jobs, CHUNK_SCRIPTS)
