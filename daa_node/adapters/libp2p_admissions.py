"""Which connected peers the door has let in, who is a visitor, and who waits to hear of it."""

import trio
from libp2p.peer.id import ID


class Admissions:
    """One peer may have several connections: it is let in, and forgotten, as one."""

    def __init__(self) -> None:
        self._let_in: dict[ID, trio.Event] = {}  # or kept as a visitor
        self._visitors: dict[ID, str] = {}  # the one protocol of each

    def expect(self, peer_id: ID) -> None:
        """It is connected, and at the door unless it is in already."""
        self._let_in.setdefault(peer_id, trio.Event())

    def admit(self, peer_id: ID) -> None:
        if peer_id in self._let_in:
            self._let_in[peer_id].set()

    def keep(self, peer_id: ID, protocol: str) -> bool:
        """As a visitor, for this protocol alone. False if it is in already, or has gone."""
        event = self._let_in.get(peer_id)
        if event is None or event.is_set():
            return False
        self._visitors[peer_id] = protocol
        event.set()
        return True

    def visits(self, peer_id: ID) -> str | None:
        """The protocol that a visitor is here for."""
        return self._visitors.get(peer_id)

    def forget(self, peer_id: ID) -> None:
        """It has gone: who comes back is a stranger."""
        self._let_in.pop(peer_id, None)
        self._visitors.pop(peer_id, None)

    def has(self, peer_id: ID) -> bool:
        event = self._let_in.get(peer_id)
        return event is not None and event.is_set() and peer_id not in self._visitors

    async def wait(self, peer_id: ID, timeout_s: float) -> bool:
        """Both sides are admitted at different moments: a stream may come a little early."""
        event = self._let_in.get(peer_id)
        if event is not None:
            with trio.move_on_after(timeout_s):
                await event.wait()
        return self.has(peer_id)

    async def wait_unless(self, peer_id: ID, closed: trio.Event) -> None:
        """Until the peer is let in or kept, or its session is closed."""
        async with trio.open_nursery() as nursery:
            for event in (self._let_in.get(peer_id, closed), closed):
                nursery.start_soon(cancel_after, event, nursery.cancel_scope)


async def cancel_after(event: trio.Event, scope: trio.CancelScope) -> None:
    await event.wait()
    scope.cancel()
