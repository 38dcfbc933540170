"""A node's three key pairs, and the two names that follow from them.

ML-DSA-65 (FIPS 204) is the lasting identity: its public key hashes to the NodeId, and it signs
every statement the node signs. ML-KEM-768 (FIPS 203) is published in the node's record. Ed25519
(RFC 8032) is the transport identity of libp2p; PeerId is the base58 text of its identity multihash
(libp2p's "peer ids" specification). All come from the `cryptography` package; a private key is kept
as its seed.
"""

from collections.abc import Callable, Hashable
from functools import lru_cache
from hashlib import sha256

from blake3 import blake3
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.mldsa import MLDSA65PrivateKey, MLDSA65PublicKey
from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey

from daa_dag.ids import NodeId, node_id_of
from daa_node.errors import PeerFault
from daa_node.seams import PeerId

ML_DSA_SEED_BYTES = 32
ML_DSA_PUBLIC_KEY_BYTES = 1952
ML_DSA_SIGNATURE_BYTES = 3309
ML_KEM_SEED_BYTES = 64
ML_KEM_PUBLIC_KEY_BYTES = 1184
ED25519_SEED_BYTES = 32
ED25519_PUBLIC_KEY_BYTES = 32
ED25519_SIGNATURE_BYTES = 64
CONTEXT_BYTES_MAX = 255  # FIPS 204, algorithm 2
# 8 kB and 8 us a parsed key, measured; twice the largest committee, so strangers' keys push each
# other out and nothing grows.
PARSED_KEYS_MAX = 256
# Digests of signatures that held, of both kinds, each under its name: none of one kind reads as one
# of the other. At so many all are forgotten at once, which is safe in any thread.
# 1 MB, ten rounds of a hundred members.
GOOD_SIGNATURES_MAX = 8192
_GOOD: set[Hashable] = set()
PEER_IDS_KEPT = 1024  # whose keys were worked out: members', and who is connected; 200 bytes each

# Signs a payload under a context. A simulation has one that always signs the same in the same way.
Sign = Callable[[bytes, bytes], bytes]

# identity multihash (0x00) of 36 bytes: a protobuf of field 1 = 1 (Ed25519) and field 2 = 32 bytes.
_PEER_ID_PREFIX = bytes.fromhex("002408011220")
_BASE58 = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
PEER_ID_CHARACTERS_MAX = 52  # 38 bytes take at most ceil(38 * log(256) / log(58)) = 52 digits


class NodeKeys:
    """The private keys of one node. Never printed: its repr names the node and nothing else."""

    __slots__ = (
        "_ed25519",
        "_ml_dsa",
        "_ml_kem",
        "_sign",
        "ml_dsa_public_key",
        "ml_kem_public_key",
        "node_id",
        "peer_id",
    )

    def __init__(
        self,
        ml_dsa_seed: bytes,
        ml_kem_seed: bytes,
        ed25519_seed: bytes,
        *,
        signer_of: Callable[[bytes], Sign] | None = None,
    ) -> None:
        """Seeds of 32, 64 (d and z of FIPS 203) and 32 bytes.

        `signer_of` the ML-DSA seed signs; without it OpenSSL does, with randomness of its own.
        """
        assert len(ml_dsa_seed) == ML_DSA_SEED_BYTES
        assert len(ml_kem_seed) == ML_KEM_SEED_BYTES
        assert len(ed25519_seed) == ED25519_SEED_BYTES
        self._ml_dsa = MLDSA65PrivateKey.from_seed_bytes(ml_dsa_seed)
        self._sign = self._ml_dsa.sign if signer_of is None else signer_of(ml_dsa_seed)
        self._ml_kem = MLKEM768PrivateKey.from_seed_bytes(ml_kem_seed)
        self._ed25519 = Ed25519PrivateKey.from_private_bytes(ed25519_seed)
        self.ml_dsa_public_key = self._ml_dsa.public_key().public_bytes_raw()
        self.ml_kem_public_key = self._ml_kem.public_key().public_bytes_raw()
        self.node_id: NodeId = node_id_of(self.ml_dsa_public_key)
        self.peer_id: PeerId = peer_id_of(self.ed25519_public_key)

    def __repr__(self) -> str:
        return f"NodeKeys(node_id={self.node_id.hex()})"

    @classmethod
    def generate(cls) -> "NodeKeys":
        """Fresh keys from the operating system's entropy, drawn by OpenSSL."""
        return cls(
            MLDSA65PrivateKey.generate().private_bytes_raw(),
            MLKEM768PrivateKey.generate().private_bytes_raw(),
            Ed25519PrivateKey.generate().private_bytes_raw(),
        )

    @classmethod
    def from_seed(cls, seed: bytes, signer_of: Callable[[bytes], Sign] | None = None) -> "NodeKeys":
        """The same keys for the same seed: for simulations, which must replay.

        OpenSSL's own generator ignores a seeded source, hence SHA-256 of the seed and a label.
        """

        def derived(label: bytes) -> bytes:
            return sha256(b"daa/v1/seed/" + label + b"/" + seed).digest()

        ml_kem_seed = derived(b"ml-kem-d") + derived(b"ml-kem-z")
        return cls(derived(b"ml-dsa"), ml_kem_seed, derived(b"ed"), signer_of=signer_of)

    @property
    def ml_dsa_seed(self) -> bytes:
        return self._ml_dsa.private_bytes_raw()

    @property
    def ml_kem_seed(self) -> bytes:
        return self._ml_kem.private_bytes_raw()

    @property
    def ed25519_seed(self) -> bytes:
        """What libp2p builds its key pair from; 32 bytes."""
        return self._ed25519.private_bytes_raw()

    @property
    def ed25519_public_key(self) -> bytes:
        return self._ed25519.public_key().public_bytes_raw()

    def sign(self, payload: bytes, context: bytes) -> bytes:
        """An ML-DSA-65 signature of 3,309 bytes under `context`; hedged, so that each one differs.

        Unless the keys were given another signer.
        """
        assert 0 < len(context) <= CONTEXT_BYTES_MAX
        return self._sign(payload, context)

    def sign_ed25519(self, payload: bytes) -> bytes:
        """An Ed25519 signature of 64 bytes; the payload itself must name what it is for."""
        return self._ed25519.sign(payload)

    def decapsulate(self, ciphertext: bytes) -> bytes:
        """The 32-byte ML-KEM-768 secret; for a ciphertext of the right length this never fails."""
        return self._ml_kem.decapsulate(ciphertext)


@lru_cache(maxsize=PARSED_KEYS_MAX)
def _parsed(public_key: bytes) -> MLDSA65PublicKey:
    return MLDSA65PublicKey.from_public_bytes(public_key)


def verify(public_key: bytes, signature: bytes, payload: bytes, context: bytes) -> bool:
    """Whether this ML-DSA-65 signature is good; False too for a key or signature of odd shape.

    Good ones are remembered: a vote comes alone, then again in every certificate that holds it.
    """
    if not _has_shape(public_key, signature, context):
        return False
    sized_context = bytes([len(context)]) + context
    case = _case(b"ml-dsa", public_key, signature, sized_context, payload)
    if case in _GOOD:
        return True
    if not verify_once(public_key, signature, payload, context):
        return False
    _remember(case)
    return True


def verify_once(public_key: bytes, signature: bytes, payload: bytes, context: bytes) -> bool:
    """As `verify`, of what comes once: it pushes nothing out of what is remembered."""
    if not _has_shape(public_key, signature, context):
        return False
    try:
        _parsed(public_key).verify(signature, payload, context)
    except (InvalidSignature, ValueError):
        return False
    return True


def _has_shape(public_key: bytes, signature: bytes, context: bytes) -> bool:
    return (
        len(public_key) == ML_DSA_PUBLIC_KEY_BYTES
        and len(signature) == ML_DSA_SIGNATURE_BYTES
        and len(context) <= CONTEXT_BYTES_MAX
    )


def verify_ed25519(public_key: bytes, signature: bytes, payload: bytes) -> bool:
    """Whether this Ed25519 signature is good; False too for a key or signature of odd shape.

    Good ones are remembered: a node shows the same record in every hello.
    """
    if len(public_key) != ED25519_PUBLIC_KEY_BYTES or len(signature) != ED25519_SIGNATURE_BYTES:
        return False
    case = _case(b"ed25519", public_key, signature, payload)
    if case in _GOOD:
        return True
    try:
        Ed25519PublicKey.from_public_bytes(public_key).verify(signature, payload)
    except (InvalidSignature, ValueError):
        return False
    _remember(case)
    return True


def _case(*parts: bytes) -> Hashable:
    """All but the payload have a known size, so that no two cases read as the same bytes."""
    return blake3(b"".join(parts)).digest()


def _remember(case: Hashable) -> None:
    if len(_GOOD) >= GOOD_SIGNATURES_MAX:
        _GOOD.clear()
    _GOOD.add(case)


def peer_id_of(ed25519_public_key: bytes) -> PeerId:
    """libp2p's name for a 32-byte Ed25519 public key: "12D3KooW" and 44 more characters."""
    assert len(ed25519_public_key) == ED25519_PUBLIC_KEY_BYTES
    return PeerId(_base58(_PEER_ID_PREFIX + ed25519_public_key))


@lru_cache(maxsize=PEER_IDS_KEPT)
def ed25519_public_key_of(peer_id: str) -> bytes:
    """The key inside a PeerId; PeerFault("peer-id") unless it is the one text of an Ed25519 key."""
    if len(peer_id) > PEER_ID_CHARACTERS_MAX:
        raise PeerFault("peer-id", f"{len(peer_id)} characters, at most {PEER_ID_CHARACTERS_MAX}")
    number = 0
    for character in peer_id:
        digit = _BASE58.find(character)
        if digit < 0:
            raise PeerFault("peer-id", f"{character!r} is no base58 digit")
        number = number * 58 + digit
    raw = number.to_bytes(len(_PEER_ID_PREFIX) + ED25519_PUBLIC_KEY_BYTES + 1)
    key = raw[-ED25519_PUBLIC_KEY_BYTES:]
    # Encoding again settles prefix, length and leading digits in one comparison.
    if peer_id != peer_id_of(key):
        raise PeerFault("peer-id", f"{peer_id} does not name an Ed25519 key")
    return key


def _base58(payload: bytes) -> str:
    number, digits = int.from_bytes(payload), ""
    while number:
        number, digit = divmod(number, 58)
        digits = _BASE58[digit] + digits
    zeros = len(payload) - len(payload.lstrip(b"\0"))
    return "1" * zeros + digits
