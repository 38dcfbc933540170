"""Who may ask what over HTTP: two secrets, of which one reads and one may do everything.

They come in the header `Authorization: Bearer` alone (RFC 6750, 2.1). In an address they would end
up in logs, histories and the `Referer` of the next page.
"""

import hmac
from dataclasses import dataclass
from enum import IntEnum

TOKEN_BYTES = 32
TOKEN_CHARACTERS = 2 * TOKEN_BYTES  # hex


class Right(IntEnum):
    """A higher one has all that is below it."""

    NOTHING = 0
    READ = 1
    ADMIN = 2


@dataclass(frozen=True, slots=True, repr=False)
class Tokens:
    """Of one node, in hex; never shown: not even in a traceback."""

    read: str
    admin: str

    def right_of(self, authorization: str) -> Right:
        """Of that header's value. A token that is nearly right takes as long as any other."""
        scheme, _, shown = authorization.partition(" ")
        if scheme.lower() != "bearer":
            return Right.NOTHING
        said = shown.encode()  # bytes: text that is not ASCII cannot be compared
        is_read = hmac.compare_digest(said, self.read.encode())
        is_admin = hmac.compare_digest(said, self.admin.encode())
        if is_admin:
            return Right.ADMIN
        return Right.READ if is_read else Right.NOTHING
