"""Who is here round after round and brings nothing, and so is not waited for in every round.

A trainer that is too slow for the rounds of a network, or wants to be a burden, is connected and in
the plan. A grace for it each time is lost for all others: where rounds take a second, half of them.
Now and then it gets one still: who is merely a little later than all others comes in then, and is
waited for from then on as one of those who contributed lately. Local: every node decides alone.
"""

from collections.abc import Set

from daa_dag.ids import NodeId

# Rounds in a row: as many as who has contributed is waited for after its last.
MISSED_MAX = 4
TRIED_EACH = 16  # rounds; what all give for it is a sixteenth of a grace
NAMES_MAX = 4096  # who missed a round last is remembered, and who offered in vain last


class Absences:
    """One node's memory since its start."""

    def __init__(self) -> None:
        # Of a node how many in a row; who did it last comes last.
        self._missed: dict[NodeId, int] = {}  # rounds
        self._in_vain: dict[NodeId, int] = {}  # offers

    def note(
        self,
        planned: Set[NodeId],
        contributed: Set[NodeId],
        reachable: Set[NodeId],
        offered: Set[NodeId],
    ) -> None:
        """A round ended so. Who was not planned, or is away, has not missed it.

        Nor has it made up for others: one that idles is soon back on the roll, and as slow.
        """
        for node in contributed:
            self._missed.pop(node, None)
            self._in_vain.pop(node, None)
        _count(self._missed, (planned & reachable) - contributed)
        _count(self._in_vain, offered - contributed)

    def not_awaited(self, round_number: int, offered: Set[NodeId]) -> set[NodeId]:
        """In the round that runs; all members wait in the same one.

        Whose offer is here is waited for: it was away, and is back. But an offer is one signature,
        and means nothing any more once as many came to nothing.
        """
        if round_number % TRIED_EACH == 0:
            return set()
        absent = {node for node, missed in self._missed.items() if missed >= MISSED_MAX}
        return absent - {node for node in offered if self._in_vain.get(node, 0) < MISSED_MAX}


def _count(counts: dict[NodeId, int], nodes: Set[NodeId]) -> None:
    for node in sorted(nodes):
        counts[node] = counts.pop(node, 0) + 1
    for node in list(counts)[:-NAMES_MAX]:
        del counts[node]
