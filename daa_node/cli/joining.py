"""A visit at a node of a running network: for who knows an address, and is no node of it yet.

    dial -> hello, with our own keys and the network's chain id -> ask -> check

Whoever answers cannot change what the network is, as the chain id follows from the genesis: the
operator has that id from somebody whom he trusts. The id does not cover the addresses: those stand
in a record of each validator, signed by it. So none can be left out or made up, but an older record
may come in place of the newest. Hello finds out what else stands in the way of this host.
"""

from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

import trio

from daa_dag.ids import DIGEST_BYTES, ChainId, NodeId
from daa_node import genesis
from daa_node.adapters.libp2p_transport import Libp2pTransport
from daa_node.adapters.system_clock import SystemClock, SystemEntropy
from daa_node.cli import identity
from daa_node.config import NodeConfig
from daa_node.errors import NodeError, PeerFault, Unavailable, UserError
from daa_node.identity.keys import NodeKeys
from daa_node.network import dial_back
from daa_node.network.config import NetworkConfig
from daa_node.network.directory import Directory
from daa_node.network.hello import OPEN_PROTOCOLS, Hello, OwnStanding
from daa_node.network.reachability import ANSWER_BYTES_MAX, RING_LATE_S, ports_of
from daa_node.network.requests import Requests
from daa_node.network.topics import dht_namespace
from daa_node.observability.events import PEER_REFUSED, EventLog
from daa_node.seams import BELL_TOKEN_BYTES, Address, PeerId
from daa_node.wire import protocols

GREETING_TIMEOUT_S = 15.0  # longer than a door stays open: whoever refuses has said why by then
GREETED_MAX = 64  # a relay on the way, and whoever dials us; one that is forgotten is waited for
TOLD_CHARACTERS_MAX = 300  # of what is wrong with what somebody has sent, on the terminal
GENESIS_TIMEOUT_S = 120.0  # a genesis of a hundred validators, 2 MB, at a fifth of a megabit

# What hello refuses for, in the words of somebody who has just begun; other reasons speak for
# themselves.
REMEDIES = {
    "wrong-chain": "it is a node of another network than --chain names; ask its operator for the "
    "chain id (`daa-node id` shows it there), or take the address of a node of your network",
    "full": "it has no place for another guest now: try the address of another node, or later",
}
T = TypeVar("T")


def first_of(group: ExceptionGroup[UserError]) -> UserError:
    """Of a group of them, however deep."""
    first: Exception = group
    while isinstance(first, ExceptionGroup):
        first = first.exceptions[0]
    assert isinstance(first, UserError)
    return first


def chain_id_of(text: str) -> ChainId:
    """Raises UserError."""
    try:
        found = bytes.fromhex(text)
    except ValueError:
        found = b""
    if len(found) != DIGEST_BYTES:
        raise UserError(
            f"--chain {text}: a chain id has {2 * DIGEST_BYTES} hexadecimal digits; `daa-node id` "
            "shows it on a host of the network"
        )
    return ChainId(found)


def fetch(address: Address, chain_id: ChainId, keys: NodeKeys) -> genesis.Genesis:
    """As `genesis_of`, for who is in no event loop."""
    return trio.run(genesis_of, address, chain_id, keys)


async def genesis_of(address: Address, chain_id: ChainId, keys: NodeKeys) -> genesis.Genesis:
    """The genesis of `chain_id`, from the node at `address`. Raises UserError for what fails."""
    return await Visit(address, chain_id, keys).during(lambda visit: visit.ask_genesis())


class Visit:
    """A node for a few questions to one other: it keeps nothing."""

    def __init__(
        self,
        address: Address,
        chain_id: ChainId,
        keys: NodeKeys,
        listen: tuple[Address, ...] = (),
        remedies: Mapping[str, str] = REMEDIES,
    ) -> None:
        """`listen`: where others may dial us meanwhile."""
        self._address, self._chain_id, self._keys = address, chain_id, keys
        self._remedies = remedies
        clock = SystemClock()
        config = NetworkConfig(listen=listen, bootstrap=(address,))
        self._events = EventLog(clock.wall_ns)
        self._transport = Libp2pTransport(keys.ed25519_seed, dht_namespace(chain_id), config)
        directory = Directory(trio.current_time, {}, self._events)
        self._requests = Requests(self._transport, directory, self._events)
        record = identity.sign_own_record(keys, NodeConfig(network=config), ())
        standing = OwnStanding(lambda: record, lambda: 0)
        self._hello = Hello(
            self._transport, directory, clock, self._events, chain_id, standing, config
        )
        self._greeted: dict[PeerId, trio.Event] = defaultdict(trio.Event)
        self.peer_id = PeerId("")  # whoever answers, once somebody does
        self._directory = directory
        self._transport.guard(self._door, OPEN_PROTOCOLS, self._blame, directory.is_member)
        self._transport.set_handler(protocols.HELLO, self._hello.serve)

    async def during(self, talk: Callable[["Visit"], Awaitable[T]]) -> T:
        """What comes of `talk` with whoever answers there. Raises UserError for what fails."""
        found: list[T] = []
        failed: list[NodeError] = []
        try:
            async with trio.open_nursery() as nursery:
                await nursery.start(self._transport.run)
                try:
                    await self._meet()
                    found.append(await talk(self))
                except (Unavailable, PeerFault, UserError) as failure:
                    failed.append(failure)
                nursery.cancel_scope.cancel()
        except* UserError as no_door:  # a port that is taken, a name that is another host's
            failed.append(first_of(no_door))
        if not failed:
            return found[0]
        if isinstance(failed[0], UserError):
            raise failed[0]
        raise UserError(self._why(str(failed[0])), exit_code=1)

    @property
    def node_id(self) -> NodeId | None:
        """Who answers, as its own signature proves."""
        return self._directory.node_of(self.peer_id)

    @property
    def clock_off_s(self) -> float | None:
        """How far its clock is ahead of ours, as its hello tells."""
        standing = self._directory.standing(self.peer_id)
        return None if standing is None else standing.clock_off_s

    async def ask(self, name: str, body: bytes, bytes_max: int, timeout_s: float = 30.0) -> bytes:
        """Raises Unavailable and PeerFault."""
        return await self._requests.ask(self.peer_id, name, body, bytes_max, timeout_s)

    async def is_dialled_back(self, wait_s: float) -> bool | None:
        """Whether it can dial us where we listen; None if it did not try."""
        ports = ports_of(self._transport.addresses())
        token = SystemEntropy().bytes(BELL_TOKEN_BYTES)
        if not ports:
            return None
        with self._transport.doorbell.awaiting(token) as rung:
            try:
                body = dial_back.encode_request(token, ports)
                answer = await self.ask(dial_back.REQUEST, body, ANSWER_BYTES_MAX)
                _, seconds = dial_back.decode_answer(answer)
            except (Unavailable, PeerFault):
                return None
            with trio.move_on_after(min(wait_s, seconds + RING_LATE_S)):
                await rung.wait()
            return rung.is_set()

    async def ask_genesis(self) -> genesis.Genesis:
        """Raises UserError for one that is not of our chain, Unavailable and PeerFault."""
        payload = await self.ask(
            genesis.GENESIS_REQUEST, b"", genesis.GENESIS_BYTES_MAX, GENESIS_TIMEOUT_S
        )
        try:
            text = payload.decode()
        except UnicodeDecodeError:
            raise PeerFault("malformed", "a genesis is text") from None
        try:
            made = genesis.parse("what it sent", text)
        except UserError as fault:
            why = "".join(c if c.isprintable() else "?" for c in str(fault)[:TOLD_CHARACTERS_MAX])
            raise UserError(f"{self._address} sent no genesis: {why}", 1) from None
        if made.chain_id != self._chain_id:
            raise UserError(
                f"{self._address} sent the genesis of chain {made.chain_id.hex()}, and --chain is "
                f"{self._chain_id.hex()}: do not trust this node; take another one's address",
                exit_code=1,
            )
        return made

    async def _meet(self) -> None:
        self.peer_id = await self._transport.dial(self._address)
        with trio.move_on_after(GREETING_TIMEOUT_S):
            await self._greeted[self.peer_id].wait()
        if self.refusal() is not None:
            raise Unavailable("refused")

    async def _door(self, peer_id: PeerId) -> bool:
        try:
            return await self._hello.door(peer_id)
        finally:
            self._greeted[peer_id].set()
            if len(self._greeted) > GREETED_MAX:
                del self._greeted[next(iter(self._greeted))]

    def _blame(self, peer_id: PeerId, fault: PeerFault) -> None:
        self._directory.blame(peer_id, fault)

    def refusal(self) -> tuple[str, str] | None:
        """Reason and detail of what hello ended with; None if it did not refuse.

        Of the peer that we have dialled; while we have it not, of whoever stands before it.
        """
        for event in self._events.tail():
            if event["name"] == str(PEER_REFUSED) and self.peer_id in ("", event["peer_id"]):
                return str(event["reason"]), str(event["detail"])
        return None

    def _why(self, failure: str) -> str:
        refusal = self.refusal()
        if refusal is None:
            cause = failure.rpartition(": ")[2]  # in front of it the address, once a layer
            return (
                f"{self._address} did not answer ({cause}): see that a node runs there, and that "
                "its host lets this one in; or take the address of another node of the network"
            )
        reason, detail = refusal
        why = self._remedies.get(reason, detail)
        return f"{self._address} and this node cannot work together: {why}"
