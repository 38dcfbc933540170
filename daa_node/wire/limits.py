"""Every limit on what a peer may send: bytes of a message, messages of a stream, streams of a peer.

Where a message holds a quorum's signatures its limit is a function of the number of validators n,
never a constant that a hundred validators overflow.
"""

KIB, MIB = 1024, 1024 * 1024

LENGTH_PREFIX_BYTES = 4  # big-endian, counts the payload alone

SIGNATURE_BYTES = 3309  # ML-DSA-65
PUBLIC_KEY_BYTES = 1952  # ML-DSA-65
# A signature beside its signer's id and the encoding's own bytes, rounded up.
SIGNED_BYTES_MAX = SIGNATURE_BYTES + 91

# py-libp2p drops a gossip message of 1 MiB and above without a word; ours are records and heads.
GOSSIP_BYTES_MAX = 64 * KIB
# ML-DSA and ML-KEM keys, two signatures, addresses: about 7 KiB.
RECORD_BYTES_MAX = 16 * KIB
HELLO_BYTES_MAX = RECORD_BYTES_MAX + KIB
# A frame of the bulk channel before sealing: one write that keeps per-frame work under 1 %. Four
# whole chunks, and the header that names them.
FRAME_BYTES_MAX = MIB + 4 * KIB
REQUEST_BYTES_MAX = 64 * KIB

# A peer's streams beyond this are reset: 1 vote stream, 8 requests, 4 bulk, gossip, DHT, slack.
STREAMS_PER_PEER_MAX = 64
REQUESTS_PER_PEER_MAX = 8


def certificate_bytes_max(validator_count: int) -> int:
    """A certificate may carry every validator's signature, not only a quorum's."""
    return KIB + validator_count * SIGNED_BYTES_MAX


def offer_body_bytes_max(snapshot_count: int = 64) -> int:
    """One offer's canonical body: fixed fields and the roots of its spot-checkable snapshots."""
    return KIB + 34 * snapshot_count


def block_bytes_max(validator_count: int, contributor_count: int) -> int:
    """A set block: every contributor's offer, a validator's evidence being two statements."""
    offers = contributor_count * (offer_body_bytes_max() + SIGNED_BYTES_MAX)
    evidence = validator_count * 2 * (SIGNED_BYTES_MAX + KIB)
    operations = validator_count * (PUBLIC_KEY_BYTES + KIB)
    return 4 * KIB + offers + evidence + operations


def vote_bytes_max(validator_count: int, contributor_count: int) -> int:
    """The largest message of a vote stream: a proposal with the certificates that justify it."""
    return block_bytes_max(validator_count, contributor_count) + 3 * certificate_bytes_max(
        validator_count
    )


def response_bytes_max(validator_count: int, contributor_count: int) -> int:
    """A request's answer: at most a page of eight blocks, each with its certificate, or 1 MiB."""
    page = 8 * (
        block_bytes_max(validator_count, contributor_count)
        + 2 * certificate_bytes_max(validator_count)
    )
    return max(MIB, page)
