"""Limits on what any peer may send: bytes of a message, messages of a stream, streams of a peer.

What grows with the number of validators has its limits in daa_consensus/bft/limits.py.
"""

KIB, MIB = 1024, 1024 * 1024

LENGTH_PREFIX_BYTES = 4  # big-endian, counts the payload alone

# py-libp2p drops a gossip message of 1 MiB and above without a word; ours are records and heads.
GOSSIP_BYTES_MAX = 64 * KIB
# ML-DSA and ML-KEM keys, two signatures, addresses: about 7 KiB.
RECORD_BYTES_MAX = 16 * KIB
HELLO_BYTES_MAX = RECORD_BYTES_MAX + KIB
# A frame of the bulk channel before sealing: one write that keeps per-frame work under 1 %. Four
# whole chunks, and the header that names them.
FRAME_BYTES_MAX = MIB + 4 * KIB
# The largest message of the largest committee, which may write to who was away while it grew; what
# we write ourselves has a bound of its own, see daa_node/agreement/messages.py.
MESSAGE_BYTES_MAX = 3 * MIB
REQUEST_BYTES_MAX = 64 * KIB
VOLUNTEER_FRAME_BYTES_MAX = 64 * KIB  # a key and a signature, or a thousand bits and one
TASK_BYTES_MAX = 16 * MIB  # two inner states of half a million parameters, and their batches

# A peer's streams beyond this are reset: 1 vote stream, 8 requests, 4 bulk, gossip, DHT, slack.
STREAMS_PER_PEER_MAX = 64
REQUESTS_PER_PEER_MAX = 8
