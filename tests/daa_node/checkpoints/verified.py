"""What the verifier says of a little chain, for tests that damage or forge one."""

from collections.abc import Awaitable, Callable
from pathlib import Path

import trio

from daa_node.checkpoints.contents import ChainFacts
from daa_node.checkpoints.verify import Report, verify_chain
from tests.daa_node.checkpoints.little_chain import FACTS, ChainMaker


def verify(chain: Path, facts: ChainFacts = FACTS) -> Report:
    return verify_chain(chain, facts)


def named(report: Report) -> set[str]:
    return {problem.where for problem in report.problems}


def what_of(report: Report, where: str) -> str:
    return "; ".join(p.what for p in report.problems if p.where == where)


def made(directory: Path, play: Callable[[ChainMaker], Awaitable[None]]) -> Path:
    """A chain directory that `play` made."""
    maker = ChainMaker(directory)

    async def run() -> None:
        await maker.open()
        await play(maker)

    trio.run(run)
    return maker.chain_directory
