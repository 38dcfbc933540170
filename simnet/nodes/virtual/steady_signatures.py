"""Signatures that a run repeats: ML-DSA-65 without randomness, by a second library.

FIPS 204 allows both variants (algorithm 2, with rnd all zeros here), and nobody who verifies can
tell them apart. Signatures get into blocks, with a Rejoin, with evidence, with a request for
membership; so block ids follow from them, and what follows from block ids. OpenSSL, which signs for
real daemons, takes its randomness from nobody; PyCryptodome, which libp2p needs anyway, takes none.
"""

from Crypto.PublicKey.MLDSA import ML_DSA_65, construct
from Crypto.Signature import mldsa

from daa_node.identity.keys import Sign


def steady_signer_of(ml_dsa_seed: bytes) -> Sign:
    """Signs with the key of that seed: the same words under one context have one signature."""
    key = construct(param_set=ML_DSA_65, seed=ml_dsa_seed)

    def sign(payload: bytes, context: bytes) -> bytes:
        return mldsa.new(key, context, deterministic=True).sign(payload)

    return sign
