"""What an aggregation rule is, and the rules by name.

A rule sees chunks of decoded contributions on the grid and returns grid integers within their
range. It gives the same bits for any order of its rows, and refuses a set that its bound does not
cover; no rule ever falls back to a weaker one.
"""

from collections.abc import Sequence
from typing import Final, Protocol

from daa_node.tensors import Int32Array
from daa_node.updates.aggregation.mean import Mean
from daa_node.updates.aggregation.trimmed_mean import TrimmedMean


class Rule(Protocol):
    """One way to merge N contributions, coordinate by coordinate."""

    @property
    def name(self) -> str: ...

    def check_bound(self, m: int, f_agg: int) -> None:
        """Raises RuleUnbounded if m contributions cannot hold off f_agg bad ones."""

    def aggregate_chunk(
        self, updates_NC: Int32Array, weights_N: Sequence[int], f_agg: int
    ) -> Int32Array:
        """One merged value for each column of `updates_NC`. Raises RuleUnbounded."""


_RULES: Final[dict[str, Rule]] = {rule.name: rule for rule in (Mean(), TrimmedMean())}


def rule_named(name: str) -> Rule:
    """Raises KeyError for a name that the genesis could not have fixed."""
    return _RULES[name]
