"""What letters are made of here: keys whose signatures are constant, and how letters are opened.

Nobody can forge a signature in this world, and no machine looks at one: it says whose it is and no
more, so that two runs send the same bytes. Everything else about a key is as in the daemon: names
follow from keys, and a newcomer brings its own. A letter is decoded once for all who take letters
of its size; what may be believed of it each host judges by the committees that it knows.
"""

from collections import OrderedDict
from dataclasses import dataclass
from functools import cached_property, lru_cache

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from daa_consensus.bft.limits import Limits
from daa_consensus.bft.messages import Block
from daa_consensus.committee import Committee
from daa_consensus.membership import Membership
from daa_dag.ids import ChainId, NodeId, node_id_of
from daa_node.agreement.inbound import Inbound
from daa_node.agreement.letters import Letter, decode_letter
from daa_node.identity.keys import peer_id_of
from daa_node.identity.validators import Validators
from daa_node.seams import PeerId
from simnet.determinism import Streams

OPENED_KEPT = 4096  # letters whose decoded form is remembered
KEYS_KEPT = 4096  # public keys whose names are


class Keys:
    """Stands in for a node's keys: names follow from them, signatures are constant."""

    def __init__(self, streams: Streams, index: int | str) -> None:
        self.ml_dsa_public_key = streams.bytes(f"node {index}")
        self.ml_kem_public_key = streams.bytes(f"node {index} kem")
        self.node_id = node_id_of(self.ml_dsa_public_key)
        self._transport = Ed25519PrivateKey.from_private_bytes(streams.bytes(f"node {index} peer"))
        self.peer_id: PeerId = peer_id_of(self._transport.public_key().public_bytes_raw())

    def sign(self, payload: bytes, context: bytes) -> bytes:
        return signature_of(self.node_id)

    def sign_ed25519(self, payload: bytes) -> bytes:
        """In earnest: the same bytes give the same signature."""
        return self._transport.sign(payload)


def keys_of(streams: Streams, count: int) -> tuple[Keys, ...]:
    """Names ascend with the node's number, as committees are sorted."""
    drawn = (Keys(streams, index) for index in range(count))
    return tuple(sorted(drawn, key=lambda keys: keys.node_id))


def stranger_of(keys: Keys, number: int) -> Keys:
    """Keys that the holder of `keys` makes up: the same ones for the same number."""
    return Keys(Streams(int.from_bytes(keys.node_id[:7])), f"stranger {number}")


def signature_of(node_id: NodeId) -> bytes:
    """Every signature of a node: says no more than whose it is, so the trace is the same."""
    return b"by " + node_id[:8]


@lru_cache(maxsize=KEYS_KEPT)
def _signature_under(public_key: bytes) -> bytes:
    return signature_of(node_id_of(public_key))


def check(public_key: bytes, signature: bytes, payload: bytes, context: bytes) -> bool:
    """Whether the signature is that key's."""
    return signature == _signature_under(public_key)


@dataclass(frozen=True)
class Network:
    """What all hosts of a world have in common. `keys` are all nodes', by number."""

    chain_id: ChainId
    genesis: Block
    committee: Committee  # of the first epoch
    keys: tuple[Keys, ...]
    epoch_rounds: int
    delta_ns: int
    doublings_max: int

    @cached_property
    def number_of(self) -> dict[NodeId, int]:
        return {keys.node_id: number for number, keys in enumerate(self.keys)}

    @cached_property
    def _number_at(self) -> dict[PeerId, int]:
        return {keys.peer_id: number for number, keys in enumerate(self.keys)}

    def number_at(self, peer_id: PeerId) -> int:
        return self._number_at[peer_id]

    def validators(self) -> Validators:
        """The history that every host begins with."""
        first = [keys for keys in self.keys if keys.node_id in self.committee.stake_of]
        return Validators(
            self.chain_id,
            self.epoch_rounds,
            Membership(self.committee),
            {keys.node_id: keys.ml_dsa_public_key for keys in first},
            {keys.node_id: keys.peer_id for keys in first},
            tuple(self.committee.stake_of),
            check,
        )


class Desk:
    """Decodes each letter once for all hosts that take letters of its size."""

    def __init__(self) -> None:
        self._letters: OrderedDict[tuple[bytes, int, int], Letter] = OrderedDict()

    def decoded(self, payload: bytes, limits: Limits) -> Letter:
        """Raises PeerFault."""
        key = (payload, limits.validators, limits.contributors)
        letter = self._letters.get(key)
        if letter is None:
            letter = self._letters[key] = decode_letter(payload, limits)
            if len(self._letters) > OPENED_KEPT:
                self._letters.popitem(last=False)
        return letter


class Opening(Inbound):
    """One host's: the daemon's judgement of letters that were decoded for everybody."""

    def __init__(self, desk: Desk, validators: Validators) -> None:
        super().__init__(validators)
        self._desk = desk

    def decoded(self, payload: bytes) -> Letter:
        return self._desk.decoded(payload, self.limits)
