"""A host's TLS certificate, read again when its files change: a renewed one needs no restart."""

import ssl
from pathlib import Path


class Certificate:
    """PEM files: the certificate with its chain, and its key."""

    def __init__(self, chain: Path, key: Path) -> None:
        self._chain = chain
        self._key = key
        self._of: tuple[int, int] | None = None  # when the files were written that were read
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)

    def context(self) -> ssl.SSLContext:
        """For a server, as the files are now. Raises OSError, also as ssl.SSLError."""
        now = (self._chain.stat().st_mtime_ns, self._key.stat().st_mtime_ns)
        if now != self._of:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.minimum_version = ssl.TLSVersion.TLSv1_2
            context.set_alpn_protocols(["http/1.1"])
            context.load_cert_chain(self._chain, self._key)
            self._of, self._context = now, context
        return self._context
