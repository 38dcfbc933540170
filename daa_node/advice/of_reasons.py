"""Why two nodes do not work together, and why a browser is sent away: by the reason alone.

A reason is one of this program's own words. What stands behind it is the other side's, and chooses
nothing: who could choose the message could choose the advice.
"""

from daa_node.advice.of_messages import (
    CHAINS,
    CLOCKS,
    CLOCKS_APART,
    OTHER_CHAIN,
    VERSIONS,
    VERSIONS_APART,
)
from daa_node.advice.row import Row

OF_OTHERS = Row(
    "",
    "The two sides will not work together, for a reason that is not in this program's table",
    "Ask the operator of that node. Its words are its own, and nobody has checked them: do nothing "
    "that they alone tell you to do",
)
_RECORD = "What a node says of itself was cut or changed, or was written by another version"
_VERSIONS = f"{VERSIONS}. Where one node alone is apart, ask its operator first"
_ASK_VERSION = "Ask its operator which version runs there. Nothing here is wrong"

# Of `peer_refused`, in its hello.
REFUSALS: tuple[Row, ...] = (
    Row("wrong-chain", OTHER_CHAIN, CHAINS),
    Row("clock-skew", CLOCKS_APART, CLOCKS),
    Row("incompatible-version", VERSIONS_APART, _VERSIONS),
    Row(
        "full",
        "The node has no place for another one now",
        "Nothing is to be done: it has no place now. One reachable member is enough",
    ),
    Row(
        "banned",
        "One of the two has broken the rules too often, and nothing is taken from it for a while",
        "Nothing, if it is the other one. If it is this node, look at its version, and ask the "
        "operator who refuses it what `peer_fault` says there",
    ),
    Row(
        "two-names",
        "The same connection key belongs to another member already",
        "See that no two hosts run with parts of one directory: each node has keys of its own",
    ),
    Row(
        "superseded",
        "The same node has come with a newer connection, which goes before this one",
        "Nothing, if the node was started again. Else look for a second host with its keys",
    ),
    Row(
        "peer-id",
        "The node shows another connection key than its record names",
        "See on that host that keys/ is whole, and not mixed of two nodes",
    ),
    Row(
        "record-expired",
        "What a node says of itself is too old or from the future: its clock is mostly the cause",
        CLOCKS,
    ),
    Row("record-version", _RECORD, _VERSIONS),
    Row("record-malformed", _RECORD, _ASK_VERSION),
    Row("record-signature", _RECORD, _ASK_VERSION),
    Row(
        "hello-malformed",
        "What came is no greeting of a node of this program",
        "Ask its operator what listens there. Nothing here is wrong",
    ),
)

_PAGE = "Have the person load the page again: it and the gateway are of two versions"
# Of `volunteer_refused`.
VOLUNTEERS: tuple[Row, ...] = (
    Row("closed", "The gateway takes no volunteers now", "Set gateway.sessions_max above 0"),
    Row("full", "As many volunteers as there may be are here", "Raise gateway.sessions_max"),
    Row(
        "address-full",
        "One address has as many volunteers as it may have",
        "Raise gateway.sessions_per_address_max if many people share it, as in a school",
    ),
    Row("address-faults", "That address did wrong too often. It may come again in an hour"),
    Row("new-names", "That address has made too many new identities. It may come again in an hour"),
    Row("too-fast", "The browser sent more messages than a page does"),
    Row("silent", "Nothing was heard of the browser for too long: it sleeps, or its network ended"),
    Row("late", "The browser did not say who it is in time"),
    Row("idle", "The browser did not take up work for too long"),
    Row("node", "A node came in where volunteers do", "Tell its operator: nodes have a door apart"),
    Row("version", "The page and the gateway speak two versions", _PAGE),
    Row("chain", "The page is of another network", _PAGE),
    Row("standing", "Its results were wrong too often"),
    Row("signature", "The browser did not prove who it is", _PAGE),
    Row("replayed", "The same proof was shown twice"),
    Row("unknown-task", "A result came for no task that it has", _PAGE),
    Row("malformed", "What the browser sent is no message of the page", _PAGE),
    Row("clock", "The clock of that computer is off", "Have the person set the clock"),
    Row("role", "Something else than a volunteer came in", _PAGE),
    Row("expired", "The proof of who it is was too old", "Have the person set the clock"),
    Row("peer-id", "The browser shows another key than its proof names", _PAGE),
)
