"""When a node looks at the held-out loss of what it has just published: not while it is late.

    started --an own contribution was merged, or SETTLE_S--> looks at each newest vertex
               |                ^
               |                | REST times as long as it took
               +--> others had gone on meanwhile

An evaluation takes a slow host as long as several rounds. If it came before the next round each
time, such a host would follow for ever, and contribute nothing.
"""

import trio

# By then whoever was let in has contributed; who only looks on, or is paused, wants to see as well.
SETTLE_S = 60.0
REST = 9  # a tenth of its time for who is left behind by looking


class LossTurns:
    """One node's, since its start."""

    def __init__(self) -> None:
        self._not_before_s = trio.current_time() + SETTLE_S
        self._has_looked = False

    def contributed(self) -> None:
        """A set holds an update of ours: until then every second goes to the first one."""
        if not self._has_looked:
            self._not_before_s = trio.current_time()

    def may_look(self, is_behind: bool) -> bool:
        """`is_behind`: others have more than we do, and it is followed first."""
        return not is_behind and trio.current_time() >= self._not_before_s

    def looked(self, took_s: float, is_behind: bool) -> None:
        """`is_behind`: others went on while we looked."""
        self._has_looked = True
        if is_behind:
            self._not_before_s = trio.current_time() + REST * took_s
