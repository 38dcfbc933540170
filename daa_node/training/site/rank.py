"""One process of a site: what all do, and the life of one that follows.

    start --> ready | refused --> join --> joined --> load, store, (share ... step | loss) until EOF

The first rank is the worker itself, which the daemon speaks with; the others are its children, do
what it says over a socket pair each, and see neither data files nor the daemon. They meet in a file
and speak over the loopback interface. The kernel kills a follower when the worker ends, however.
"""

import argparse
import mmap
import os
import signal
import socket
import sys
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from daa_node.errors import TrainerFailed, UserError
from daa_node.tensors import Float32Array
from daa_node.training.config import TrainerConfig, TrainingJob
from daa_node.training.core import choose_device, loss_of, multiply_in_full
from daa_node.training.datasets.examples import AnyArray, Batch
from daa_node.training.messages import RECEIVE_BYTES, Message, Unpacker, pack
from daa_node.training.module_source import ModuleAccess
from daa_node.training.parent_death import die_with
from daa_node.training.site.shards import Shards, Share, check_frozen, check_shardable

LOOPBACK = "lo"
# Two halves of one step take about as long; who is behind by this is suspended or hung.
TOGETHER_S = 120.0
FAULTS = (TrainerFailed, OSError, ValueError, RuntimeError, MemoryError, TypeError)
# Of a share in one message: examples may be large pictures, and a message has its limit.
PIECE_BYTES = 2**20
WHY_CHARS_MAX = 900  # the daemon shows the worker's last thousand


def join(rank: int, ranks: int, device: torch.device, meeting: Path) -> DeviceMesh:
    """All ranks of a site, which meet in a file. Raises RuntimeError.

    torchrun's variables are set, for code that reads them. torchrun itself is not used: it listens
    on every address, and starts again by its own rule what the daemon restarts by its.
    """
    said = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": ranks, "LOCAL_WORLD_SIZE": ranks}
    os.environ.update({name: str(value) for name, value in said.items()})
    os.environ.update({"GLOO_SOCKET_IFNAME": LOOPBACK, "NCCL_SOCKET_IFNAME": LOOPBACK})
    is_gpu = device.type == "cuda"
    if is_gpu:
        torch.cuda.set_device(device)
    dist.init_process_group(
        "nccl" if is_gpu else "gloo",
        store=dist.FileStore(  # type: ignore[attr-defined]
            str(meeting), ranks
        ),
        rank=rank,
        world_size=ranks,
        timeout=timedelta(seconds=TOGETHER_S),
        device_id=device if is_gpu else None,
    )
    return init_device_mesh(device.type, (ranks,))


def board_bytes(parameter_count: int) -> int:
    return 3 * parameter_count * np.dtype(np.float32).itemsize


def map_board(descriptor: int, parameter_count: int) -> Float32Array:
    """(3, D) in memory that all ranks share."""
    board = mmap.mmap(descriptor, board_bytes(parameter_count))
    return np.frombuffer(board, np.float32).reshape(3, parameter_count)


def said_share(share: Share) -> list[Message]:
    """As messages: some of its examples each, and its weight with the last ones."""
    arrays = share.batch.inputs, share.batch.targets
    count = len(share.batch.inputs)
    each = max(1, PIECE_BYTES * count // max(1, sum(array.nbytes for array in arrays)))
    pieces: list[Message] = [
        {"arrays": [_said_rows(array[start : start + each]) for array in arrays]}
        for start in range(0, count, each)
    ]
    pieces[-1]["weight"] = share.weight
    return pieces


def _said_rows(rows: AnyArray) -> list[Any]:
    return [rows.dtype.str, list(rows.shape), rows.tobytes()]


def heard_share(pieces: Sequence[Message]) -> Share:
    parts = zip(*(piece["arrays"] for piece in pieces), strict=True)
    inputs, targets = (np.concatenate([_heard_rows(*rows) for rows in part]) for part in parts)
    return Share(Batch(inputs, targets), pieces[-1]["weight"])


def _heard_rows(dtype: str, shape: list[int], held: bytes) -> AnyArray:
    return np.frombuffer(held, dtype).reshape(shape)


class _Follower:
    """What one rank but the first does."""

    def __init__(self, start: Message) -> None:
        """Raises UserError."""
        self._job = TrainingJob.model_validate_json(start["job"])
        config = TrainerConfig.model_validate_json(start["trainer"])
        self._start = start
        torch.set_num_threads(config.threads)
        multiply_in_full()
        check_shardable(self._job.model.tensors())
        self._device = choose_device(config.devices[start["rank"]])
        self._loss = loss_of(self._job.model, self._job.seed, ModuleAccess.of(config))
        check_frozen(self._loss)
        self._shards: Shards | None = None
        self._pieces: list[Message] = []  # of the next share, as far as it is here

    def join(self) -> None:
        start, model = self._start, self._job.model
        mesh = join(start["rank"], start["ranks"], self._device, Path(start["meeting"]))
        board_3D = map_board(start["board"], model.parameter_count())
        self._shards = Shards(self._job.inner, model.tensors(), self._loss, mesh, board_3D)

    def carry_out(self, message: Message) -> Message | None:
        """An answer, where one is waited for. Raises FAULTS."""
        shards = self._shards
        assert shards is not None, "joined first"
        match message["verb"]:
            case "load":
                shards.load(message["adam_steps"])
            case "store":
                shards.store()
            case "share":
                self._pieces.append(message)
                return None
            case "step":
                shards.step(self._share(), message["lr"])
                return None
            case "loss":
                shards.loss(self._share())
                return None
            case verb:
                raise TrainerFailed(f"no verb {verb!r}")
        return {"done": message["verb"]}

    def _share(self) -> Share:
        """For one verb, which it came before."""
        pieces, self._pieces = self._pieces, []
        return heard_share(pieces)


def main() -> None:
    """Until the first rank closes the socket, or ends."""
    arguments = argparse.ArgumentParser(prog="daa_node.training.site.rank")
    arguments.add_argument("--fd", type=int, required=True, help="our end of the worker's socket")
    arguments.add_argument("--parent", type=int, required=True, help="the worker's process id")
    given = arguments.parse_args()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    die_with(given.parent)
    line = socket.socket(fileno=given.fd)
    messages = _messages(line)
    try:
        follower = _Follower(next(messages)["start"])
    except UserError as refused:
        line.sendall(pack({"refused": str(refused)}))
        return
    line.sendall(pack({"ready": os.getpid()}))
    try:
        next(messages)
        follower.join()
        line.sendall(pack({"joined": os.getpid()}))
        for message in messages:
            answer: Any = follower.carry_out(message)
            if answer is not None:
                line.sendall(pack(answer))
    except FAULTS as fault:
        line.sendall(pack({"failed": f"{type(fault).__name__}: {fault}"[:WHY_CHARS_MAX]}))
        sys.stdout.flush()
        os._exit(1)  # the group is broken: nothing of it would end in order
    os._exit(0)


def _messages(line: socket.socket) -> Iterator[Message]:
    unpacker = Unpacker()
    while received := line.recv(RECEIVE_BYTES):
        yield from unpacker.feed(received)


if __name__ == "__main__":
    main()
