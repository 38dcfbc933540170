"""Messages are decoded once, where whoever writes, reads and judges them is one process.

Limits do nothing but refuse: what narrow ones let through is the same message to wider ones. It is
frozen, and nobody changes what a statement in it lists.
"""

from daa_consensus.bft.limits import Limits
from daa_node.agreement.messages import Message, decode_message

MESSAGES_KEPT = 512  # read by its writer first, then within seconds by every member

_decoded: dict[bytes, tuple[int, int, Message]] = {}  # and the limits that it was read under


def decoded(payload: bytes, limits: Limits) -> Message:
    """What `decode_message` makes of it. Raises PeerFault("malformed")."""
    known = _decoded.get(payload)
    if known is not None:
        validators, contributors, message = known
        if validators <= limits.validators and contributors <= limits.contributors:
            return message
    message = decode_message(payload, limits)
    _decoded[payload] = limits.validators, limits.contributors, message
    if len(_decoded) > MESSAGES_KEPT:
        del _decoded[next(iter(_decoded))]
    return message


def forget() -> None:
    """Before a run, which is then as ever: liars tell by its address whether they know a body."""
    _decoded.clear()
