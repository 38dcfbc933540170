"""What the streams of a connection carry before noise seals it, without what is random.

All that is written to a stream is hashed as it is: negotiations, gossip, what the DHT says, and our
own protocols; whatever chance is in it is the run's own. Of a bulk session, whose keys, proofs and
ciphertexts are random, the number of bytes.
"""

from collections.abc import Mapping
from typing import Any
from weakref import WeakSet

from daa_node.adapters.yamux_streams import YamuxStream
from daa_node.wire.protocols import BULK
from simnet.nodes.virtual.scheduling import OUTSIDE, now_ns
from simnet.nodes.virtual.third_party import Written
from simnet.world.determinism import Trace

# With this line of multistream both sides agree on the protocol; nothing follows it in its write.
BULK_LINE = bytes([len(BULK) + 1]) + BULK.encode() + b"\n"


def hashed(trace: Trace, node_of: Mapping[str, int]) -> Written:
    """What is to be told of every write to a stream; `node_of` numbers peer ids."""
    bulk: WeakSet[YamuxStream] = WeakSet()

    def written(stream: YamuxStream, payload: bytes) -> None:
        session: Any = stream.muxed_conn  # ours, which knows both ends
        ends = session.secured_conn.get_local_peer(), session.peer_id
        sender, receiver = (node_of.get(str(peer), OUTSIDE) for peer in ends)
        told = len(payload).to_bytes(4) if stream in bulk else payload
        trace.frame(now_ns(), sender, receiver, told)
        if payload.endswith(BULK_LINE):
            bulk.add(stream)

    return written
