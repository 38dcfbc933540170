"""Hashes in the place of signatures hold where they are believed, and nothing else does there."""

from daa_node.identity.keys import NodeKeys, verify, verify_ed25519
from simnet.nodes.virtual.cheap_signatures import CheapKeys, believed, cheap_signer_of
from simnet.world.determinism import Streams

REAL = NodeKeys.from_seed(b"alice")


def test_cheap_signatures_hold_for_their_key_and_words_alone_and_while_they_are_believed() -> None:
    with believed():
        alice, bob = (NodeKeys.from_seed(name, cheap_signer_of) for name in (b"alice", b"bob"))
        name, of_bob, other = (k.ed25519_public_key for k in (alice, bob, REAL))
        vote, claim = alice.sign(b"vote", b"context"), alice.sign_ed25519(b"claim")
        assert verify(alice.ml_dsa_public_key, vote, b"vote", b"context")
        assert not verify(alice.ml_dsa_public_key, vote, b"vote", b"another context")
        assert not verify(bob.ml_dsa_public_key, vote, b"vote", b"context")
        assert verify_ed25519(name, claim, b"claim")
        assert not verify_ed25519(name, claim, b"another claim")
        assert not verify_ed25519(of_bob, claim, b"claim")
        assert not verify_ed25519(name[:-1], claim, b"claim")
        assert not verify_ed25519(name, REAL.sign_ed25519(b"claim"), b"claim")
    assert (alice.node_id, alice.peer_id, name) == (REAL.node_id, REAL.peer_id, other)
    assert len(vote) == len(REAL.sign(b"vote", b"context"))
    assert len(claim) == len(REAL.sign_ed25519(b"claim"))
    assert not verify(alice.ml_dsa_public_key, vote, b"vote", b"context")
    assert not verify_ed25519(name, claim, b"claim")
    assert verify_ed25519(name, REAL.sign_ed25519(b"claim"), b"claim")


def test_keys_are_drawn_and_written_down_where_cheap_signatures_are_believed_as_elsewhere() -> None:
    with believed():
        drawn = NodeKeys.generate()
        seeds = drawn.ml_dsa_seed, drawn.ml_kem_seed, drawn.ed25519_seed
    again = NodeKeys(*seeds)
    assert (again.node_id, again.peer_id) == (drawn.node_id, drawn.peer_id)


def test_a_run_draws_keys_that_a_process_makes_once_and_no_two_of_its_own_are_the_same() -> None:
    names = [f"node {number}" for number in range(300)]  # more than there are to draw from
    with believed():
        first, again, other = (CheapKeys(Streams(seed)) for seed in (1, 1, 2))
        drawn = [first.of(name) for name in names]
        assert len({keys.node_id for keys in drawn}) == len({k.peer_id for k in drawn}) == 300
        assert [first.of(name) for name in names] == [again.of(name) for name in names] == drawn
        assert [other.of(name) for name in names[:3]] != drawn[:3]
        assert set(map(other.of, names[:3])) <= set(drawn)
