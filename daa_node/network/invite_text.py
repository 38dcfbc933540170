"""An invite as text that a person sends: which network, where, by whom, and a secret token.

    daa1 <base32 of: version, chain id, inviter, token, addresses, checksum>

Letters and digits alone, so that a double click takes it whole; spaces and line breaks that a chat
or a mail puts in mean nothing. The checksum finds what was lost or changed by hand. It is no
signature: a made-up token has a right checksum, and no validator knows it.
"""

import base64
from collections.abc import Sequence
from dataclasses import dataclass

from daa_dag.ids import DIGEST_BYTES, ChainId, NodeId, digest_of
from daa_node.errors import UserError
from daa_node.network.typed_addresses import multiaddr_of
from daa_node.seams import Address

MARK = "daa1"
VERSION = 1
TOKEN_BYTES = 16  # nobody guesses one of 2^128
CHECKSUM_BYTES = 4  # of a slip of the hand one in 4 billion passes
ADDRESSES_MAX = 4
ADDRESS_BYTES_MAX = 200  # a name in the DNS is shorter, or nobody types it
# Together; the first goes in however long. So the text stays below 300 characters, or below 500
# with one long address alone, as one through a relay is.
ADDRESSES_BYTES_MAX = 100
TEXT_CHARACTERS_MAX = 2048
_FIXED_BYTES = 1 + 2 * DIGEST_BYTES + TOKEN_BYTES + CHECKSUM_BYTES
AROUND = " \"'`<>“”„«»‘’"  # what programs put around what they show
BEHIND = ".,;:!?)"  # what ends a sentence that it stands in
REMEDY = "copy the whole of it again, from daa1 on; or ask for another one"


@dataclass(frozen=True, slots=True)
class Invite:
    """What the text holds. `addresses` are as a person types them."""

    chain_id: ChainId
    inviter: NodeId
    token: bytes
    addresses: tuple[str, ...]

    @property
    def dialled(self) -> list[Address]:
        """The addresses as multiaddrs."""
        return [Address(multiaddr_of(text)) for text in self.addresses]


def encode_invite(invite: Invite) -> str:
    """With as many addresses, in their order, as keep it short."""
    assert len(invite.token) == TOKEN_BYTES
    body = bytes([VERSION]) + invite.chain_id + invite.inviter + invite.token
    taken, room = 0, ADDRESSES_BYTES_MAX
    for text in invite.addresses[:ADDRESSES_MAX]:
        encoded = text.encode()
        room -= 1 + len(encoded)
        if len(encoded) <= ADDRESS_BYTES_MAX and (room >= 0 or not taken):
            body += bytes([len(encoded)]) + encoded
            taken += 1
    body += digest_of(body)[:CHECKSUM_BYTES]
    return MARK + base64.b32encode(body).decode().rstrip("=").lower()


def decode_invite(pasted: str) -> Invite:
    """Raises UserError for what is no invite, or not the whole of one."""
    # also without what nobody sees: a page's zero-width characters, a byte order mark
    text = "".join(c for c in pasted if c.isprintable() and c not in AROUND).lower()
    _, mark, digits = text.partition(MARK)  # words before it are of whoever sent it
    if len(text) > TEXT_CHARACTERS_MAX or not mark:
        raise UserError(
            f"this is no invite: one begins with {MARK}. `daa-node invite`, on a validator, makes "
            "one"
        )
    digits = digits.rstrip(BEHIND).upper()
    try:
        body = base64.b32decode(digits + "=" * (-len(digits) % 8))
    except ValueError:  # binascii.Error is one, and so is a letter that is not of ASCII
        raise UserError(f"this invite has lost or gained a character: {REMEDY}") from None
    if body[:1] > bytes([VERSION]) and _holds(body):
        raise UserError(
            f"this invite has version {body[0]}, and this daa-node reads version {VERSION}: update "
            "the program"
        )
    if len(body) < _FIXED_BYTES or not _holds(body):
        raise UserError(f"this invite is not whole, or a character of it was changed: {REMEDY}")
    rest = memoryview(body)[1:-CHECKSUM_BYTES]
    chain_id, inviter = bytes(rest[:DIGEST_BYTES]), bytes(rest[DIGEST_BYTES : 2 * DIGEST_BYTES])
    token = bytes(rest[2 * DIGEST_BYTES :][:TOKEN_BYTES])
    addresses = _addresses_in(bytes(rest[2 * DIGEST_BYTES + TOKEN_BYTES :]))
    return Invite(ChainId(chain_id), NodeId(inviter), token, addresses)


def _holds(body: bytes) -> bool:
    return digest_of(body[:-CHECKSUM_BYTES])[:CHECKSUM_BYTES] == body[-CHECKSUM_BYTES:]


def _addresses_in(packed: bytes) -> tuple[str, ...]:
    found = []
    while packed:
        size, packed = packed[0], packed[1:]
        try:
            text = packed[:size].decode("ascii")
            multiaddr_of(text)
        except ValueError as fault:
            raise UserError(f"this invite names an address that is none: {fault}") from None
        found.append(text)
        packed = packed[size:]
    if not 1 <= len(found) <= ADDRESSES_MAX:
        raise UserError("this invite names no address to dial: ask for another one")
    return tuple(found)


def as_typed(addresses: Sequence[Address]) -> tuple[str, ...]:
    """Multiaddrs as a person types them, names and far addresses first, each once."""
    typed = dict.fromkeys(_typed(address) for address in addresses)
    return tuple(sorted(typed, key=_distance))


def _typed(address: Address) -> str:
    plain = address.partition("/p2p/")[0] if "/p2p-circuit" not in address else address
    match plain.split("/"):
        case ["", "ip4" | "dns", host, "tcp", port]:
            return f"{host}:{port}"
        case ["", "ip6", host, "tcp", port]:
            return f"[{host}]:{port}"
        case ["", "ip4" | "dns", host, "tcp", port, "ws"]:
            return f"ws://{host}:{port}"
        case _:
            return plain


def _distance(typed: str) -> int:
    """Loopback last, and a WebSocket after the same without one."""
    near = typed.removeprefix("ws://").startswith(("127.", "[::1]", "localhost"))
    return 2 * near + typed.startswith(("ws://", "/"))
