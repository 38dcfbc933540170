"""What can be wrong with bytes that somebody gave us.

DagError
 +-- NotCanonical     bytes that are not the one encoding of a value
 +-- Malformed        a value of the wrong shape or out of range

Both are the giver's fault; daa_node maps them to PeerFault when a peer gave the bytes.
"""


class DagError(Exception):
    """Base of this package's errors."""


class NotCanonical(DagError):
    """The bytes decode to nothing, or to a value whose one encoding differs from them."""


class Malformed(DagError):
    """The value has the wrong shape, or a number is out of its range."""
