"""Signatures that cost nothing, for worlds in which nobody forges one: a hash anybody can make.

As long as ML-DSA-65's, so that messages keep their sizes. They hold for the same key, context and
payload, and for nothing else: what is damaged or composed of others' statements is refused as ever.
Only `believed` makes the daemon take them, and no longer.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from blake3 import blake3
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.mldsa import MLDSA65PrivateKey

from daa_node.identity import keys
from daa_node.identity.keys import ML_DSA_SIGNATURE_BYTES, Sign


def cheap_signer_of(ml_dsa_seed: bytes) -> Sign:
    """Signs for the public key of that seed."""
    public_key = MLDSA65PrivateKey.from_seed_bytes(ml_dsa_seed).public_key().public_bytes_raw()
    return _Cheap(public_key).sign


class _Cheap:
    """A public key in the place of cryptography's."""

    def __init__(self, public_key: bytes) -> None:
        self._public_key = public_key

    def sign(self, payload: bytes, context: bytes) -> bytes:
        told = blake3(self._public_key)
        told.update(bytes([len(context)]) + context)
        told.update(payload)
        return told.digest(length=ML_DSA_SIGNATURE_BYTES)

    def verify(self, signature: bytes, payload: bytes, context: bytes) -> None:
        if signature != self.sign(payload, context):
            raise InvalidSignature


@contextmanager
def believed() -> Iterator[None]:
    """Until the block ends `keys.verify` takes these, and no others."""
    names, before = vars(keys), keys._parsed
    keys._GOOD.clear()  # a real signature that was good before the block is not in it
    names["_parsed"] = _Cheap
    try:
        yield
    finally:
        names["_parsed"] = before
        keys._GOOD.clear()
