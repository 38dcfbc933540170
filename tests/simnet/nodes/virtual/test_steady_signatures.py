"""Signatures without randomness are those of the standard, and made once for all."""

from daa_node.identity.keys import NodeKeys, verify
from simnet.nodes.virtual.steady_signatures import steady_signer_of
from tests.daa_node.identity.test_vectors import kat_blocks


def test_they_are_the_published_ones_of_the_deterministic_variant() -> None:
    seen = 0
    for block in kat_blocks("asymmetric/MLDSA/kat_MLDSA_65_det_pure.rsp"):
        sign = steady_signer_of(bytes.fromhex(block["xi"]))
        message, context = bytes.fromhex(block["msg"]), bytes.fromhex(block["ctx"])
        assert sign(message, context) == bytes.fromhex(block["sm"])[:3309], block["count"]
        seen += 1
    assert seen == 100


def test_a_node_with_them_is_the_same_node_and_repeats_itself() -> None:
    steady, hedged = NodeKeys.from_seed(b"alice", steady_signer_of), NodeKeys.from_seed(b"alice")
    assert steady.node_id == hedged.node_id
    once, again = (steady.sign(b"words", b"daa/v1/notarize") for _ in range(2))
    assert once == again
    assert verify(hedged.ml_dsa_public_key, once, b"words", b"daa/v1/notarize")
    assert hedged.sign(b"words", b"daa/v1/notarize") != hedged.sign(b"words", b"daa/v1/notarize")
