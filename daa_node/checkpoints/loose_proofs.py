"""Certificates in files of their own: whether they are still what they were when they came.

A pack has a check of each record, so what rots in it is not read. A file has none: whoever was
shown a signature that a disk has turned would blame the honest node that showed it. So before a
certificate is shown, or packed, which would seal it as it is, it is compared with the digest that
it had when it was written. One of an earlier process has none: its signatures are verified, once.

    to verify --good--> known --changed, and not good--> rotten --put anew--> known
"""

from collections.abc import Callable, Collection

import trio

from daa_consensus.bft.messages import encode_certificate
from daa_consensus.votes import Certificate
from daa_dag.ids import Digest, digest_of
from daa_node.checkpoints.layout import CERTIFICATES
from daa_node.errors import PeerFault, StorageFailed
from daa_node.identity.validators import LATER_EPOCH


class LooseProofs:
    """Of one chain. As many as lie there in files: what is packed is forgotten."""

    def __init__(self) -> None:
        self._digests: dict[str, Digest | None] = {}  # by file name; None: to verify
        self._rotten: dict[str, Digest | None] = {}  # as they are now; None: not even decoded
        self._found = dict[str, None]()  # of these, those that nobody has taken up
        # Raises PeerFault; None: nothing is verified yet, as those who signed are not known.
        self.verify: Callable[[Certificate], None] | None = None
        self.has_found = trio.Event()

    @property
    def rotten(self) -> Collection[str]:
        """Names of files that no pack should take."""
        return self._rotten.keys()

    @property
    def names(self) -> frozenset[str]:
        """Of all files that we know of."""
        return frozenset(self._digests)

    def lie_there(self, names: Collection[str]) -> None:
        """An earlier process has left these."""
        self._digests |= dict.fromkeys(names, None)

    def wrote(self, name: str, payload: bytes) -> None:
        """It lies in a file of its own now, and is good."""
        self._know(name, digest_of(payload))

    def forget(self, names: Collection[str]) -> None:
        """They are in files of their own no more."""
        for name in names:
            self._digests.pop(name, None)
            self._rotten.pop(name, None)
            self._found.pop(name, None)

    def check(self, name: str, certificate: Certificate) -> bool:
        """Whether it is good, or was not read from a file. Raises StorageFailed if it has rotted.

        False: we do not know yet who signs in its epoch.
        """
        if name not in self._digests:
            return True
        known, now = self._digests[name], digest_of(encode_certificate(certificate))
        if known == now:
            self._rotten.pop(name, None)  # it was misread
            return True
        if self.verify is None:
            return known is None
        if self._rotten.get(name) != now:
            try:
                self.verify(certificate)
            except PeerFault as fault:
                if fault.reason == LATER_EPOCH and known is None:
                    return False
                self._note(name, now)
            else:
                self._know(name, now)
                return True
        raise StorageFailed(f"{CERTIFICATES}/{name} is damaged: a signature in it is not good")

    def damaged(self, name: str) -> None:
        """What is read by this name is no certificate, or nothing; it matters of a file."""
        if name in self._digests and name not in self._rotten:
            self._note(name, None)

    def take_found(self) -> list[str]:
        """What has rotted since the last call, each once."""
        found, self._found = list(self._found), {}
        self.has_found = trio.Event()
        return found

    def _know(self, name: str, digest: Digest) -> None:
        self._digests[name] = digest
        self._rotten.pop(name, None)

    def _note(self, name: str, now: Digest | None) -> None:
        self._rotten[name] = now
        self._found[name] = None
        self.has_found.set()
