"""A hybrid session between two nodes: who they are, two fresh secrets, one key a direction.

Pure: messages go in, messages come out; the bulk channel carries them over an authenticated stream.

    initiator                                   responder
    opening       nonce, suites, X25519, ML-KEM key  -->
                  <--  nonce, suite, X25519, ciphertext, endpoints, signature       answer
    confirmation  signature                          -->
                  <--  proof that it holds the keys                                  ready

Both sign, with ML-DSA-65 under `daa/v1/session`, their role and the transcript hash, which covers
the chain, both NodeIds and PeerIds, both nonces, the suites offered and taken, all ephemerals and
the ciphertext. HKDF-SHA-256 takes the ML-KEM-768 and the X25519 secret, salted with the transcript
hash, so that breaking one of the two is not enough. Every suite is hybrid: there is nothing weaker
to fall back to. Either side may answer with a refusal, one word, instead.
"""

import hmac
from dataclasses import dataclass
from typing import Any, NewType

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey, MLKEM768PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from daa_dag import canonical
from daa_dag.errors import NotCanonical
from daa_dag.ids import ChainId, NodeId, node_id_of, tagged_digest
from daa_node.errors import PeerFault, Unavailable
from daa_node.identity.frames import AES_SUITE, CHACHA_SUITE, Opener, Sealer
from daa_node.identity.keys import (
    ML_DSA_PUBLIC_KEY_BYTES,
    ML_DSA_SIGNATURE_BYTES,
    ML_KEM_PUBLIC_KEY_BYTES,
    NodeKeys,
    verify,
)
from daa_node.seams import PeerId

Token = NewType("Token", bytes)

CONTEXT = b"daa/v1/session"
# In our order of preference: AES-256-GCM is twice as fast wherever the processor has AES.
SUITES = (AES_SUITE, CHACHA_SUITE)

NONCE_BYTES = 32
X25519_BYTES = 32
CIPHERTEXT_BYTES = 1088
KEY_BYTES = 32
PROOF_BYTES = 32  # HMAC-SHA-256
# The largest message is an answer: 1,952 key + 1,088 ciphertext + 3,309 signature + endpoints.
MESSAGE_BYTES_MAX = 8192
SUITES_OFFERED_MAX = 8
TEXT_BYTES_MAX = 64
ENDPOINTS_MAX = 8
REASON_CHARACTERS_MAX = 200
HOST_BYTES_MAX = 64  # an IPv6 address in text has at most 45
WHERE_SEEN = "0.0.0.0"  # a side's host, of which it knows no number: where the other one sees it


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a side listens for sockets: an IP address in text, or WHERE_SEEN, and a port."""

    host: str
    port: int


@dataclass(frozen=True, slots=True)
class SessionKeys:
    """What both sides hold after a handshake. Never logged."""

    suite: str
    remote_node_id: NodeId
    is_initiator: bool
    initiator_key: bytes  # seals what the initiator sends
    responder_key: bytes
    token: Token  # names the session on a fresh socket, once
    dial_key: bytes  # proves on that socket that both ends hold the session
    endpoints: tuple[Endpoint, ...]  # the responder's

    @property
    def send_key(self) -> bytes:
        return self.initiator_key if self.is_initiator else self.responder_key

    @property
    def receive_key(self) -> bytes:
        return self.responder_key if self.is_initiator else self.initiator_key

    def sealer(self) -> Sealer:
        return Sealer(self.suite, self.send_key, self.is_initiator)

    def opener(self) -> Opener:
        return Opener(self.suite, self.receive_key, not self.is_initiator)

    def dial_proof(self) -> bytes:
        """What whoever opens the socket sends after the token; mostly the initiator."""
        return _mac(self.dial_key, b"dial" + self.token)

    def welcome_proof(self) -> bytes:
        """What the other side answers on the socket."""
        return _mac(self.dial_key, b"welcome" + self.token)


@dataclass(frozen=True, slots=True)
class Local:
    """Our side of every session."""

    chain_id: ChainId
    keys: NodeKeys
    suites: tuple[str, ...] = SUITES


@dataclass(frozen=True, slots=True)
class Remote:
    """Who must be at the other end: the stream's PeerId, and the NodeId its record binds to it."""

    node_id: NodeId
    peer_id: PeerId


@dataclass(frozen=True, slots=True)
class _Half:
    """What one side puts into the transcript."""

    node_id: NodeId
    peer_id: PeerId
    nonce: bytes
    x25519: bytes


class Initiator:
    """Opens a session. Any PeerFault or Unavailable ends the machine."""

    def __init__(self, local: Local, remote: Remote, nonce: bytes) -> None:
        assert len(nonce) == NONCE_BYTES
        assert set(local.suites) <= set(SUITES)
        self._local = local
        self._remote = remote
        self._x25519 = X25519PrivateKey.generate()
        self._ml_kem = MLKEM768PrivateKey.generate()
        self._half = _Half(
            local.keys.node_id,
            local.keys.peer_id,
            nonce,
            self._x25519.public_key().public_bytes_raw(),
        )
        self._keys: SessionKeys | None = None
        self._ready = b""

    def opening(self) -> bytes:
        keys = self._local.keys
        return canonical.encode(
            [
                "opening",
                self._local.chain_id,
                keys.ml_dsa_public_key,
                keys.peer_id,
                self._half.nonce,
                list(self._local.suites),
                self._half.x25519,
                self._ml_kem.public_key().public_bytes_raw(),
            ]
        )

    def on_answer(self, message: bytes) -> bytes:
        """The confirmation to send. Raises PeerFault; Unavailable when the peer refuses."""
        assert self._keys is None
        fields = _fields_of(message, "answer", 9)
        public_key = _bytes_of(fields[0], ML_DSA_PUBLIC_KEY_BYTES, "public key")
        suite = _text_of(fields[3], TEXT_BYTES_MAX, "suite")
        ciphertext = _bytes_of(fields[5], CIPHERTEXT_BYTES, "ciphertext")
        endpoints = _endpoints_of(fields[6])
        signature = _bytes_of(fields[7], ML_DSA_SIGNATURE_BYTES, "signature")
        half = _half_of(public_key, fields[1], fields[2], fields[4], self._remote)
        if suite not in self._local.suites:
            raise PeerFault("downgrade", f"suite {suite!r} was not offered")
        transcript = _transcript(
            self._local.chain_id,
            (self._half, half),
            (self._local.suites, suite),
            (self._ml_kem.public_key().public_bytes_raw(), ciphertext),
            endpoints,
        )
        _check_signature(public_key, signature, "responder", transcript)
        secret = self._ml_kem.decapsulate(ciphertext) + _agreed(self._x25519, half.x25519)
        self._keys, self._ready = _derive(secret, transcript, suite, half.node_id, True, endpoints)
        mine = self._local.keys.sign(_signed_statements("initiator", transcript), CONTEXT)
        return canonical.encode(["confirmation", mine])

    def on_ready(self, message: bytes) -> SessionKeys:
        """Raises PeerFault; Unavailable when the peer refuses."""
        assert self._keys is not None
        (proof,) = _fields_of(message, "ready", 2)
        if not hmac.compare_digest(_bytes_of(proof, PROOF_BYTES, "proof"), self._ready):
            raise PeerFault("bad-proof", "the peer does not hold this session's keys")
        return self._keys


class Responder:
    """Answers one handshake. Any PeerFault ends the machine."""

    def __init__(
        self, local: Local, remote: Remote, nonce: bytes, endpoints: tuple[Endpoint, ...]
    ) -> None:
        assert len(nonce) == NONCE_BYTES
        assert len(endpoints) <= ENDPOINTS_MAX
        self._local = local
        self._remote = remote
        self._nonce = nonce
        self._endpoints = endpoints
        self._public_key = b""
        self._transcript = b""
        self._keys: SessionKeys | None = None
        self._ready = b""

    def on_opening(self, message: bytes) -> bytes:
        """The answer to send. Raises PeerFault."""
        assert self._keys is None
        fields = _fields_of(message, "opening", 8)
        if _bytes_of(fields[0], 32, "chain id") != self._local.chain_id:
            raise PeerFault("foreign-chain", f"session for chain {fields[0].hex()[:8]}")
        self._public_key = _bytes_of(fields[1], ML_DSA_PUBLIC_KEY_BYTES, "public key")
        half = _half_of(self._public_key, fields[2], fields[3], fields[5], self._remote)
        offered = _suites_of(fields[4])
        encapsulation_key = _bytes_of(fields[6], ML_KEM_PUBLIC_KEY_BYTES, "ML-KEM key")
        suite = next((s for s in self._local.suites if s in offered), None)
        if suite is None:
            raise PeerFault("no-common-suite", f"{', '.join(offered)} offered")
        x25519 = X25519PrivateKey.generate()
        try:
            kem_secret, ciphertext = MLKEM768PublicKey.from_public_bytes(
                encapsulation_key
            ).encapsulate()
        except ValueError:
            raise PeerFault("malformed", "not an ML-KEM-768 public key") from None
        keys = self._local.keys
        mine = _Half(
            keys.node_id, keys.peer_id, self._nonce, x25519.public_key().public_bytes_raw()
        )
        secret = kem_secret + _agreed(x25519, half.x25519)
        self._transcript = _transcript(
            self._local.chain_id,
            (half, mine),
            (offered, suite),
            (encapsulation_key, ciphertext),
            self._endpoints,
        )
        self._keys, self._ready = _derive(
            secret, self._transcript, suite, half.node_id, False, self._endpoints
        )
        signature = keys.sign(_signed_statements("responder", self._transcript), CONTEXT)
        words: list[canonical.Value] = ["answer", keys.ml_dsa_public_key, mine.peer_id, mine.nonce]
        words += [suite, mine.x25519, ciphertext, _dialled(self._endpoints), signature]
        return canonical.encode(words)

    def on_confirmation(self, message: bytes) -> tuple[bytes, SessionKeys]:
        """The ready message to send, and the keys. Raises PeerFault."""
        assert self._keys is not None
        (signature,) = _fields_of(message, "confirmation", 2)
        signature = _bytes_of(signature, ML_DSA_SIGNATURE_BYTES, "signature")
        _check_signature(self._public_key, signature, "initiator", self._transcript)
        return canonical.encode(["ready", self._ready]), self._keys


def refusal(reason: str) -> bytes:
    """What a side sends in place of its next message."""
    return canonical.encode(["refused", reason[:REASON_CHARACTERS_MAX]])


def dial_word(endpoints: tuple[Endpoint, ...]) -> bytes:
    """What the initiator says for the responder to open the socket: where it listens itself."""
    return canonical.encode(["dial", _dialled(endpoints)])


def endpoints_of_word(word: bytes) -> tuple[Endpoint, ...]:
    """Raises PeerFault."""
    (endpoints,) = _fields_of(word, "dial", 2)
    return _endpoints_of(endpoints)


def _mac(key: bytes, words: bytes) -> bytes:
    return hmac.digest(key, b"daa/v1/session/" + words, "sha256")


def _agreed(private: X25519PrivateKey, public: bytes) -> bytes:
    try:
        return private.exchange(X25519PublicKey.from_public_bytes(public))
    except ValueError:  # a point of low order: the secret would be all zeros
        raise PeerFault("malformed", "X25519 key of low order") from None


def _transcript(
    chain_id: ChainId,
    halves: tuple[_Half, _Half],
    suites: tuple[tuple[str, ...], str],
    ml_kem: tuple[bytes, bytes],
    endpoints: tuple[Endpoint, ...],
) -> bytes:
    sides: list[canonical.Value] = [
        [role, half.node_id, half.peer_id, half.nonce, half.x25519]
        for role, half in zip(("initiator", "responder"), halves, strict=True)
    ]
    offered, taken = suites
    words: list[canonical.Value] = [chain_id, sides, list(offered), taken, list(ml_kem)]
    return tagged_digest("session", [*words, _dialled(endpoints)])


def _dialled(endpoints: tuple[Endpoint, ...]) -> list[canonical.Value]:
    return [[e.host, e.port] for e in endpoints]


def _signed_statements(role: str, transcript: bytes) -> bytes:
    return canonical.encode([role, transcript])


def _check_signature(public_key: bytes, signature: bytes, role: str, transcript: bytes) -> None:
    if not verify(public_key, signature, _signed_statements(role, transcript), CONTEXT):
        raise PeerFault("bad-signature", f"the {role} did not sign this session")


def _derive(
    secret: bytes,
    transcript: bytes,
    suite: str,
    remote_node_id: NodeId,
    is_initiator: bool,
    endpoints: tuple[Endpoint, ...],
) -> tuple[SessionKeys, bytes]:
    """The keys, and the proof in the ready message. `secret` is ML-KEM's, then X25519's."""
    stream = HKDF(hashes.SHA256(), 5 * KEY_BYTES, transcript, CONTEXT + b"/" + suite.encode())
    material = stream.derive(secret)
    parts = [material[at : at + KEY_BYTES] for at in range(0, len(material), KEY_BYTES)]
    initiator_key, responder_key, token, dial_key, ready_key = parts
    keys = SessionKeys(
        suite=suite,
        remote_node_id=remote_node_id,
        is_initiator=is_initiator,
        initiator_key=initiator_key,
        responder_key=responder_key,
        token=Token(token),
        dial_key=dial_key,
        endpoints=endpoints,
    )
    return keys, _mac(ready_key, b"ready" + transcript)


def _fields_of(message: bytes, kind: str, size: int) -> list[Any]:
    """The fields after `kind`. Raises PeerFault, or Unavailable for a refusal."""
    try:
        value = canonical.decode(message, MESSAGE_BYTES_MAX)
    except NotCanonical as fault:
        raise PeerFault("malformed", str(fault)) from None
    match value:
        case ["refused", str() as reason] if len(reason) <= REASON_CHARACTERS_MAX:
            raise Unavailable(f"peer refused the session: {reason}")
        case [str() as first, *fields] if first == kind and len(fields) == size - 1:
            return fields
    raise PeerFault("malformed", f"{kind} of {size} fields expected")


def _half_of(public_key: bytes, peer_id: Any, nonce: Any, x25519: Any, remote: Remote) -> _Half:
    half = _Half(
        node_id_of(public_key),
        PeerId(_text_of(peer_id, TEXT_BYTES_MAX, "peer id")),
        _bytes_of(nonce, NONCE_BYTES, "nonce"),
        _bytes_of(x25519, X25519_BYTES, "X25519 key"),
    )
    if half.node_id != remote.node_id or half.peer_id != remote.peer_id:
        raise PeerFault(
            "identity-mismatch",
            f"{half.node_id.hex()[:8]} at {half.peer_id}, expected "
            f"{remote.node_id.hex()[:8]} at {remote.peer_id}",
        )
    return half


def _suites_of(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not 1 <= len(value) <= SUITES_OFFERED_MAX:
        raise PeerFault("malformed", f"1 to {SUITES_OFFERED_MAX} suites expected")
    return tuple(_text_of(kind, TEXT_BYTES_MAX, "suite") for kind in value)


def _endpoints_of(value: Any) -> tuple[Endpoint, ...]:
    if not isinstance(value, list) or len(value) > ENDPOINTS_MAX:
        raise PeerFault("malformed", f"at most {ENDPOINTS_MAX} endpoints")
    endpoints = []
    for item in value:
        match item:
            case [str() as host, int() as port] if type(port) is int and 0 < port < 65536:
                endpoints.append(Endpoint(_text_of(host, HOST_BYTES_MAX, "host"), port))
            case _:
                raise PeerFault("malformed", "an endpoint is a host and a port")
    return tuple(endpoints)


def _bytes_of(value: Any, size_bytes: int, what: str) -> bytes:
    if not isinstance(value, bytes) or len(value) != size_bytes:
        raise PeerFault("malformed", f"{what} has {size_bytes} bytes")
    return value


def _text_of(value: Any, size_bytes_max: int, what: str) -> str:
    if not isinstance(value, str) or not 1 <= len(value.encode()) <= size_bytes_max:
        raise PeerFault("malformed", f"{what} is a word of at most {size_bytes_max} bytes")
    return value
