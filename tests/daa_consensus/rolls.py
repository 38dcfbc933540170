"""Rolls as a genesis has them, of names alone."""

from collections.abc import Collection

from daa_consensus.roll import Roll, RollRules, fixed
from daa_dag.ids import NodeId


def roll_of(names: Collection[NodeId]) -> Roll:
    return fixed(RollRules(), {name: b"keys of " + name for name in names})
