"""What is no manifest of the blob asked for is refused as it came, and another peer is asked."""

from pathlib import Path

from daa_dag.chunking import Manifest
from daa_node.seams import FrameStream
from daa_node.wire.blob_messages import Found, encode_found
from tests.daa_node.network.bulk_stage import MANIFEST, Scene, on_stage, scripted, truth


class Noise(Manifest):
    """Bytes that cannot be decoded: who decodes them calls them malformed."""

    def encode(self) -> bytes:
        return bytes([0xC1]) * 100_000


def test_bytes_of_another_root_are_not_decoded(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        noisy = scene.bulk.add("noisy", scripted(truth, Noise(MANIFEST.sizes, MANIFEST.digests)))
        await scene.fetch([noisy, await scene.honest("alice")])
        await scene.check()
        assert scene.faults == [(noisy.node_id, "manifest-mismatch")]

    on_stage(tmp_path, play)


def test_more_bytes_than_a_manifest_was_said_to_have_are_a_fault(tmp_path: Path) -> None:
    async def too_much(stream: FrameStream) -> None:
        while await stream.receive_frame() is not None:
            await stream.send_frame(encode_found(Found(None, b"", 10)))
            await stream.send_frame(bytes(11))

    async def play(scene: Scene) -> None:
        wordy = scene.bulk.add("wordy", too_much)
        await scene.fetch([wordy, await scene.honest("alice")])
        await scene.check()
        assert scene.faults == [(wordy.node_id, "malformed")]

    on_stage(tmp_path, play)
