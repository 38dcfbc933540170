"""What the daemon says and signs as a volunteer's gateway, for the page to be held to, bit for bit.

python -m tests.wasm_worker.golden_volunteer > tests/golden/volunteer.json
"""

import json
from typing import Any

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.mldsa import MLDSA65PrivateKey

from daa_dag import canonical
from daa_dag.ids import ChainId, NodeId, digest_of
from daa_node.gateway.piece import Piece
from daa_node.identity.keys import NodeKeys
from daa_node.identity.volunteer import (
    HELLO_CONTEXT,
    RECORD_LIFETIME_S,
    VolunteerRecord,
    hello_bytes,
    verdict_bytes,
)
from daa_node.seams import PeerId
from daa_node.wire.protocols import PROTOCOL_VERSION
from daa_node.wire.volunteer_messages import (
    TaskKind,
    encode_beat,
    encode_challenge,
    encode_no,
    encode_taken,
    encode_task,
    encode_welcome,
)

KEYS = NodeKeys.from_seed(b"golden volunteer")
CHAIN, GATEWAY = ChainId(bytes(range(32))), NodeId(bytes(range(32, 64)))
NONCE, SESSION, TASK = bytes([7] * 32), bytes([8] * 16), bytes([9] * 16)
ISSUED_S = 1_800_000_000
EDGES = [0, 1, 127, 128, 255, 256, 65_535, 65_536, 2**32 - 1, 2**32, 2**53 - 1, 2**53, 2**64 - 1]
NEGATIVES = [-1, -32, -33, -128, -129, -32_768, -32_769, -(2**31), -(2**31) - 1, -(2**53), -(2**63)]
SIZES = [0, 1, 15, 16, 31, 32, 255, 256, 65_535, 65_536]
VALUES: list[Any] = [
    None,
    False,
    True,
    *EDGES,
    *NEGATIVES,
    "caf\u00e9 \ufb01 \U0001f600 \u0000",
    {},
    {"b": 1, "a": [b"", {"c": None}]},
    # UTF-16 has them the other way round
    {"\ufb01": 1, "\U0001f600": 2},
    {f"{number}": number for number in range(20)},
]
REFUSED = [
    b"",
    b"\xc1",
    b"\xca\x00\x00\x00\x00",  # a float
    b"\xcb" + bytes(8),
    b"\xd4\x01\x00",  # an extension
    b"\xc7\x01\x01\x00",
    b"\xcc\x7f",  # not the shortest
    b"\xcd\x00\xff",
    b"\xce\x00\x00\xff\xff",
    b"\xcf" + bytes(4) + b"\xff" * 4,
    b"\xd0\x05",
    b"\xd0\xe0",
    b"\xd1\xff\x80",
    b"\xd2\xff\xff\x80\x00",
    b"\xd3" + b"\xff" * 4 + b"\x80" + bytes(3),
    b"\xd9\x01x",
    b"\xda\x00\x20" + b"x" * 32,
    b"\xdb" + bytes(2) + b"\x01\x00" + b"x" * 256,
    b"\xc5\x00\x01x",
    b"\xc6\x00\x00\x00\x01x",
    b"\xdc\x00\x01\xc0",
    b"\xdd\x00\x00\x00\x01\xc0",
    b"\xde\x00\x00",
    b"\x93\x01",  # ends inside
    b"\xc4\x05x",
    b"\xdd\xff\xff\xff\xff",
    b"\xc0\xc0",  # goes on behind
    b"\xa1\xff",  # no UTF-8
    b"\xa3\xed\xa0\x80",
    b"\x81\x01\x01",  # a key that is no text
    b"\x81\xc4\x01a\x01",
    b"\x82\xa1b\x01\xa1a\x02",  # keys out of order, and twice
    b"\x82\xa1a\x01\xa1a\x02",
    b"\x91" * 17 + b"\xc0",  # too deep
]


def golden() -> dict[str, Any]:
    record = _record()
    return {
        "values": [canonical.encode(value).hex() for value in VALUES],
        "sizes": [
            [size, *(digest_of(canonical.encode(value)).hex() for value in _of_size(size))]
            for size in SIZES
        ],
        "integers": [[str(value), canonical.encode(value).hex()] for value in (*EDGES, *NEGATIVES)],
        "deepest": (b"\x91" * 16 + b"\x90").hex(),
        "refused": [payload.hex() for payload in REFUSED],
        "seed": KEYS.ml_dsa_seed.hex(),
        "public_key": KEYS.ml_dsa_public_key.hex(),
        "pem": MLDSA65PrivateKey.from_seed_bytes(KEYS.ml_dsa_seed)
        .private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        .decode(),
        "record": record.hex(),
        "hello_signs": hello_bytes(GATEWAY, NONCE, record).hex(),
        "verdict_signs": verdict_bytes(
            CHAIN, GATEWAY, SESSION, TASK, "loss", [b"12345678", 1]
        ).hex(),
        "from_page": {
            "hello": _said("hello", PROTOCOL_VERSION, CHAIN, record, bytes(3309)),
            "ready": _said("ready", 2, ["dag", "loss"]),
            "verdict": _said("verdict", TASK, [b"12345678", 1], 35, bytes(3309)),
            "drop": _said("drop", TASK),
            "beat": _said("beat", 300),
        },
        "to_page": {
            "challenge": encode_challenge(PROTOCOL_VERSION, NONCE).hex(),
            "welcome": encode_welcome(SESSION, KEYS.node_id, (5, 3, 1)).hex(),
            "task": encode_task(
                TASK, TaskKind.CHUNKS, [b"1" * 32, ["x", 5]], [b"abc", b""], 30_000
            ).hex(),
            "taken": encode_taken(TASK, None, (6, 3, 1)).hex(),
            "taken later": encode_taken(TASK, True, (6, 4, 1)).hex(),
            "beat": encode_beat(3).hex(),
            "no": encode_no("full", "all places are taken").hex(),
        },
        "name": KEYS.node_id.hex(),
        "proofs": [_solved(piece) for piece in _proofs()],
    }


def _of_size(size: int) -> list[Any]:
    return [bytes(size), "x" * size, [None] * size]


def _record() -> bytes:
    return VolunteerRecord(
        CHAIN,
        KEYS.ml_dsa_public_key,
        PeerId("12D3KooWPage"),
        4,
        ISSUED_S,
        ISSUED_S + RECORD_LIFETIME_S,
        ("dag", "loss"),
        "daa-page/1",
    ).encode()


def _said(*message: Any) -> str:
    return canonical.encode(message).hex()


def _proofs() -> list[Piece]:
    chunks = [b"one", b"two", b""]
    digests = [digest_of(b"one"), digest_of(b"three"), digest_of(b"")]
    ids, vertices = list[bytes](), list[bytes]()
    for height in range(5):
        parents = [ids[-1]] if height != 3 and ids else [ids[-1], ids[0]] if ids else []
        vertices.append(canonical.encode({"height": height, "parents": parents}))
        ids.append(digest_of(canonical.encode(["daa/v1/vertex", None])[:-1] + vertices[-1]))
    ids[4] = bytes(32)
    return [
        Piece(TaskKind.CHUNKS, {}, digests, chunks),
        Piece(TaskKind.DAG, {}, ids, vertices),
        Piece(TaskKind.DAG, {}, [bytes(32), ids[1]], vertices[:2]),
    ]


def _solved(piece: Piece) -> dict[str, Any]:
    return {
        "kind": str(piece.kind),
        "parameters": canonical.encode(piece.parameters).hex(),
        "blobs": [blob.hex() for blob in piece.blobs],
        "result": list(piece.truth()),
    }


def signed() -> str:
    """Of the hello; not among the others, for it is another one each time."""
    return KEYS.sign(hello_bytes(GATEWAY, NONCE, _record()), HELLO_CONTEXT).hex()


if __name__ == "__main__":
    print(json.dumps(golden() | {"signature": signed()}, indent=0))
