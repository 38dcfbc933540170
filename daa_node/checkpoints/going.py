"""What a publishing note lists as going: no part of the chain any more, and still what it was.

Whoever hands over a directory may have written any note, so each of them is judged by itself: by
its name, and a certificate by its signatures. What has gone already is as good.
"""

from collections.abc import Callable, Collection
from typing import TypeVar

from daa_consensus.bft.messages import Block
from daa_consensus.errors import ConsensusError
from daa_consensus.votes import Certificate
from daa_dag.checkpoint import VERTEX_BYTES_MAX, decode_vertex
from daa_dag.chunking import CHUNK_BYTES_MAX, MANIFEST_BYTES_MAX, Manifest, decode_manifest
from daa_dag.errors import DagError
from daa_dag.ids import digest_of
from daa_node.checkpoints.contents import (
    ChainFacts,
    block_of,
    certificate_name,
    certificate_of,
    judged_file,
    vertex_name,
)
from daa_node.checkpoints.files import ChainReader
from daa_node.checkpoints.layout import (
    BLOCKS,
    CERTIFICATES,
    CHUNKS,
    DELTAS,
    MANIFESTS,
    VERTICES,
)
from daa_node.checkpoints.plain_files import GONE, Problem
from daa_node.checkpoints.replay import delta_bytes_max
from daa_node.errors import PeerFault
from daa_node.identity.validators import Validators

T = TypeVar("T")


class Going:
    """Of one chain, once it is known who voted when."""

    def __init__(self, files: ChainReader, facts: ChainFacts, validators: Validators) -> None:
        self._files = files
        self._facts = facts
        self._validators = validators
        self.count = 0  # that are there
        self.problems: list[Problem] = []

    def judge(self, names: Collection[str]) -> None:
        """Names of a chain's files, there or not."""
        for name in sorted(names):
            kind, _, rest = name.partition("/")
            match kind:
                case _ if kind == VERTICES:
                    self._thing(name, VERTEX_BYTES_MAX, decode_vertex, vertex_name)
                case _ if kind == BLOCKS:
                    self._thing(name, self._facts.limits.block_bytes_max, self._block, _block_name)
                case _ if kind == CERTIFICATES:
                    self._certificate(name)
                case _ if kind == MANIFESTS:
                    self._thing(name, MANIFEST_BYTES_MAX, decode_manifest, _manifest_name)
                case _ if kind == CHUNKS:
                    self._thing(name, CHUNK_BYTES_MAX, bytes, _digest_name)
                case _:
                    assert kind == DELTAS
                    self._delta(name, f"{MANIFESTS}/{rest}")

    def _thing(
        self,
        name: str,
        size_bytes_max: int,
        decode: Callable[[bytes], T],
        name_of: Callable[[T], str],
    ) -> T | None:
        """None if it is not there, or is wrong, which is a problem then."""
        found = judged_file(self._files, name, size_bytes_max, decode, name_of, again=True)
        if isinstance(found, Problem):
            if found.what != GONE:
                self.count += 1
                self.problems.append(found)
            return None
        self.count += 1
        return found

    def _block(self, payload: bytes) -> Block:
        return block_of(payload, self._facts)

    def _certificate(self, name: str) -> None:
        size_bytes_max = self._facts.limits.certificate_bytes_max
        signed = self._thing(name, size_bytes_max, self._decode_certificate, certificate_name)
        if signed is None:
            return
        try:
            self._validators.verify(signed)
        except (DagError, ConsensusError, PeerFault) as fault:
            self.problems.append(Problem(f"is damaged or forged: {fault}", name))

    def _decode_certificate(self, payload: bytes) -> Certificate:
        return certificate_of(payload, self._facts)

    def _delta(self, name: str, manifest_name: str) -> None:
        payload = self._thing(
            name, delta_bytes_max(self._facts.states), bytes, lambda _: name.partition("/")[2]
        )
        if payload is None:
            return
        manifest = judged_file(
            self._files,
            manifest_name,
            MANIFEST_BYTES_MAX,
            decode_manifest,
            _manifest_name,
            again=True,
        )
        if isinstance(manifest, Problem):
            if manifest.what == GONE:  # it goes after what it lists
                self.problems.append(Problem(f"is missing: it lists the chunks of {name}", name))
            return  # else it is named where it belongs
        if len(payload) != manifest.size_bytes:
            what = f"has {len(payload)} bytes, its manifest says {manifest.size_bytes}"
            self.problems.append(Problem(what, name))
            return
        for index, digest in enumerate(manifest.digests):
            at = manifest.offsets[index]
            if digest_of(payload[at : at + manifest.sizes[index]]) != digest:
                what = f"does not hash to its manifest in chunk {index}"
                self.problems.append(Problem(what, name))


def _block_name(block: Block) -> str:
    return block.id.hex()


def _manifest_name(manifest: Manifest) -> str:
    return manifest.root.hex()


def _digest_name(chunk: bytes) -> str:
    return digest_of(chunk).hex()
