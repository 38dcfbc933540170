"""Signatures that cost nothing, for worlds in which nobody forges one: a hash anybody can make.

As long as ML-DSA-65's and Ed25519's, so that messages keep their sizes. They hold for the same key,
context and payload, and for nothing else: what is damaged or composed of others' statements is
refused as ever. Only `believed` makes the daemon give and take them, and no longer.

Keys themselves are real ones. To make them takes longest, so a process makes each of KEYS once, and
a run draws which of them are whose (CheapKeys).
"""

from collections.abc import Container, Iterator
from contextlib import contextmanager
from functools import lru_cache, partial
from types import SimpleNamespace

from blake3 import blake3
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.mldsa import MLDSA65PrivateKey

from daa_node.identity import keys
from daa_node.identity.keys import ED25519_SIGNATURE_BYTES, ML_DSA_SIGNATURE_BYTES, NodeKeys, Sign
from simnet.nodes.virtual.scheduling import replaced
from simnet.world.determinism import Streams

KEYS = 256  # that runs draw from: many times what one of them uses
_parsed = keys._parsed  # as it is elsewhere


def cheap_signer_of(ml_dsa_seed: bytes) -> Sign:
    """Signs for the public key of that seed."""
    return _Cheap(_private_key(ml_dsa_seed).public_key().public_bytes_raw()).sign


# A key is made once for the node and for its signer: longer than all that it signs here.
_private_key = lru_cache(maxsize=8)(MLDSA65PrivateKey.from_seed_bytes)


@lru_cache(maxsize=4 * KEYS)
def _keys(number: int) -> NodeKeys:
    assert vars(keys)["_parsed"] is not _parsed, "only where they are believed"
    return NodeKeys.from_seed(b"light %d" % number, cheap_signer_of)


class CheapKeys:
    """The keys of one run, by whose they are: nobody else has them in it."""

    def __init__(self, streams: Streams) -> None:
        self._streams = streams
        self._numbers: dict[str, int] = {}

    def of(self, whose: str) -> NodeKeys:
        if whose not in self._numbers:
            number, taken = self._streams.number(f"keys {whose}") % KEYS, self._numbers.values()
            while number in taken:
                number += 1
            self._numbers[whose] = number
        return _keys(self._numbers[whose])


class _Cheap:
    """A key in the place of cryptography's, both halves of it."""

    def __init__(
        self, public_key: bytes, size_bytes: int = ML_DSA_SIGNATURE_BYTES, seed: bytes = b""
    ) -> None:
        self._public_key = public_key
        self._size_bytes = size_bytes
        self._seed = seed

    def sign(self, payload: bytes, context: bytes = b"") -> bytes:
        told = blake3(self._public_key)
        told.update(bytes([len(context)]) + context)
        told.update(payload)
        return told.digest(length=self._size_bytes)

    def verify(self, signature: bytes, payload: bytes, context: bytes = b"") -> None:
        if signature != self.sign(payload, context):
            raise InvalidSignature

    def public_key(self) -> "_Cheap":
        return self

    def public_bytes_raw(self) -> bytes:
        return self._public_key

    def private_bytes_raw(self) -> bytes:
        return self._seed


_of_peer = partial(_Cheap, size_bytes=ED25519_SIGNATURE_BYTES)


def _of_seed(ed25519_seed: bytes) -> _Cheap:
    private_key = Ed25519PrivateKey.from_private_bytes(ed25519_seed)
    return _of_peer(private_key.public_key().public_bytes_raw(), seed=ed25519_seed)


@contextmanager
def believed(but_of: Container[bytes] = ()) -> Iterator[None]:
    """Until the block ends `keys.verify` and `keys.verify_ed25519` take these, and no others.

    But of the public keys in `but_of` real ones, as ever. Keys of `cheap_signer_of` that are made
    in the block sign so.
    """
    keys._GOOD.clear()  # a real signature that was good before the block is not in it
    try:
        with replaced(
            keys,
            _case=lambda *parts: parts,  # shared by whoever reads them, so that each is hashed once
            _parsed=lambda key: _parsed(key) if key in but_of else _Cheap(key),
            MLDSA65PrivateKey=SimpleNamespace(
                from_seed_bytes=_private_key, generate=MLDSA65PrivateKey.generate
            ),
            Ed25519PublicKey=SimpleNamespace(from_public_bytes=_of_peer),
            Ed25519PrivateKey=SimpleNamespace(
                from_private_bytes=_of_seed, generate=Ed25519PrivateKey.generate
            ),
        ):
            yield
    finally:
        keys._GOOD.clear()
