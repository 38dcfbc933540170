"""Keys and the names that follow from them."""

import pytest
from libp2p.crypto.ed25519 import create_new_key_pair
from libp2p.peer.id import ID

from daa_dag.ids import node_id_of
from daa_node.errors import PeerFault
from daa_node.identity.keys import (
    ML_DSA_SIGNATURE_BYTES,
    ML_KEM_PUBLIC_KEY_BYTES,
    PARSED_KEYS_MAX,
    NodeKeys,
    _parsed,
    ed25519_public_key_of,
    peer_id_of,
    verify,
    verify_ed25519,
)

KEYS = NodeKeys.from_seed(b"alice")


def test_a_signature_holds_for_its_payload_context_and_key_only() -> None:
    signature = KEYS.sign(b"payload", b"daa/v1/notarize")
    key = KEYS.ml_dsa_public_key
    assert len(signature) == ML_DSA_SIGNATURE_BYTES
    assert verify(key, signature, b"payload", b"daa/v1/notarize")
    assert not verify(key, signature, b"payloae", b"daa/v1/notarize")
    assert not verify(key, signature, b"payload", b"daa/v1/finalize")
    other = NodeKeys.from_seed(b"bob").ml_dsa_public_key
    assert not verify(other, signature, b"payload", b"daa/v1/notarize")


def test_a_signature_that_held_before_holds_for_nothing_else() -> None:
    keys, other = NodeKeys.from_seed(b"alice"), NodeKeys.from_seed(b"bob")
    signature = keys.sign(b"payload", b"context")
    for _ in range(2):
        assert verify(keys.ml_dsa_public_key, signature, b"payload", b"context")
        assert not verify(keys.ml_dsa_public_key, signature, b"tpayload", b"contex")
        assert not verify(keys.ml_dsa_public_key, signature, b"payload!", b"context")
        assert not verify(other.ml_dsa_public_key, signature, b"payload", b"context")


def test_a_signature_that_held_is_looked_up_and_not_verified_again() -> None:
    def verified() -> int:
        """How often a key was taken to verify with."""
        return _parsed.cache_info().hits + _parsed.cache_info().misses

    signature, before = KEYS.sign(b"sent again", b"context"), verified()
    for _ in range(3):
        assert verify(KEYS.ml_dsa_public_key, signature, b"sent again", b"context")
    assert verified() == before + 1


def test_what_one_kind_of_key_signed_makes_nothing_good_of_the_other_kind() -> None:
    """Good signatures are remembered by a digest: no bytes of one kind may read as the other's."""
    signature = KEYS.sign(b"payload", b"context")
    assert verify(KEYS.ml_dsa_public_key, signature, b"payload", b"context")
    told = KEYS.ml_dsa_public_key + signature + bytes([len(b"context")]) + b"contextpayload"
    for prefix in (b"", b"ml-dsa"):
        same = prefix + told
        assert not verify_ed25519(same[:32], same[32:96], same[96:])


def test_a_good_ed25519_signature_holds_again_and_for_nothing_else() -> None:
    signature = KEYS.sign_ed25519(b"payload")
    other = NodeKeys.from_seed(b"bob").ed25519_public_key
    for _ in range(2):
        assert verify_ed25519(KEYS.ed25519_public_key, signature, b"payload")
        assert not verify_ed25519(KEYS.ed25519_public_key, signature, b"payload!")
        assert not verify_ed25519(KEYS.ed25519_public_key, signature[:-1] + b"\0", b"payload")
        assert not verify_ed25519(other, signature, b"payload")


def test_odd_shapes_do_not_verify_and_do_not_raise() -> None:
    signature = KEYS.sign(b"payload", b"context")
    key = KEYS.ml_dsa_public_key
    assert not verify(key[:-1], signature, b"payload", b"context")
    assert not verify(key, signature + b"\0", b"payload", b"context")
    assert not verify(key, b"", b"payload", b"context")
    assert not verify(bytes(len(key)), bytes(len(signature)), b"payload", b"context")
    assert not verify(key, signature, b"payload", bytes(256))
    assert not verify_ed25519(b"", bytes(64), b"payload")
    assert not verify_ed25519(KEYS.ed25519_public_key, bytes(63), b"payload")


def test_the_same_seed_gives_the_same_keys_and_another_seed_gives_others() -> None:
    again = NodeKeys.from_seed(b"alice")
    assert again.node_id == KEYS.node_id == node_id_of(KEYS.ml_dsa_public_key)
    assert again.ml_kem_public_key == KEYS.ml_kem_public_key
    assert again.peer_id == KEYS.peer_id
    bob = NodeKeys.from_seed(b"bob")
    assert bob.node_id != KEYS.node_id
    assert bob.ml_kem_public_key != KEYS.ml_kem_public_key
    assert bob.peer_id != KEYS.peer_id


def test_generated_keys_differ_every_time_and_return_from_their_seeds() -> None:
    first, second = NodeKeys.generate(), NodeKeys.generate()
    assert first.node_id != second.node_id
    assert first.peer_id != second.peer_id
    again = NodeKeys(first.ml_dsa_seed, first.ml_kem_seed, first.ed25519_seed)
    assert (again.node_id, again.peer_id) == (first.node_id, first.peer_id)
    assert len(again.ml_kem_public_key) == ML_KEM_PUBLIC_KEY_BYTES


def test_a_repr_shows_no_secret() -> None:
    text = repr(KEYS)
    for secret in (KEYS.ml_dsa_seed, KEYS.ml_kem_seed, KEYS.ed25519_seed):
        assert secret.hex() not in text
        assert str(secret) not in text


def test_the_peer_id_is_the_one_that_libp2p_gives() -> None:
    for seed in (b"alice", b"bob", b"carol"):
        keys = NodeKeys.from_seed(seed)
        pair = create_new_key_pair(keys.ed25519_seed)
        assert ID.from_pubkey(pair.public_key).to_base58() == keys.peer_id
        assert ed25519_public_key_of(keys.peer_id) == keys.ed25519_public_key


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1",
        "0OIl",
        KEYS.peer_id[:-1],
        "1" + KEYS.peer_id,
        KEYS.peer_id + "1",
        KEYS.peer_id[:-1] + "é",
        "QmYyQSo1c1Ym7orWxLYvCrM2EmxFTANf8wXmmE7DWjhx5N",  # an RSA key's
        "z" * 52,
        "2" * 100_000,
    ],
)
def test_text_that_is_no_ed25519_peer_id_is_the_peers_fault(text: str) -> None:
    with pytest.raises(PeerFault, match="peer-id"):
        ed25519_public_key_of(text)


def test_a_key_that_begins_with_zeros_survives_the_round_trip() -> None:
    for zeros in (1, 8, 32):
        key = bytes(zeros) + bytes(range(1, 33 - zeros))
        assert ed25519_public_key_of(peer_id_of(key)) == key


def test_strangers_keys_push_each_other_out_of_the_cache() -> None:
    signature = KEYS.sign(b"payload", b"context")
    for number in range(PARSED_KEYS_MAX + 50):
        key = number.to_bytes(4) + KEYS.ml_dsa_public_key[4:]
        assert not verify(key, signature, b"payload", b"context")
    assert _parsed.cache_info().currsize <= PARSED_KEYS_MAX
    assert verify(KEYS.ml_dsa_public_key, signature, b"payload", b"context")
