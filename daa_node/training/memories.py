"""What a worker carries from round to round: AdamW's moments, and what error feedback owes."""

from pathlib import Path

import numpy as np
import torch

from daa_node.errors import UserError
from daa_node.training.boundaries import Carried
from daa_node.training.engine import Moments, Optimiser
from daa_node.training.memory_files import NAMES, MemoryFile


class Memory:
    """An optimiser and a residual."""

    def __init__(
        self, parameter_count: int, device: torch.device, room: MemoryFile | None = None
    ) -> None:
        """`room` is the file that they lie in, if it is not the device's memory."""
        self._room = room
        self.optimiser = Optimiser(parameter_count, device, room)
        self.residual_D = np.zeros(parameter_count, np.float32) if room is None else room.residual_D
        self.id: int | None = None  # of the end of a training that it is; see Boundary.memory_id
        self._is_blank = room is None  # all zeros, which nobody need write again

    @property
    def file(self) -> Path | None:
        return None if self._room is None else self._room.path

    def forget(self) -> None:
        self.id = None
        if self._is_blank:
            return
        if self._room is None:
            self.optimiser.forget()
            self.residual_D.fill(0)
        else:
            self.optimiser.steps.zero_()  # of zeros, even where the disk is full
            self._room.clear()
        self._is_blank = True

    def go_on_from(self, settled: "Memory") -> None:
        """Its moments. The residual is as it was, until one is sealed. Raises OSError."""
        self.id = None
        if self._room is not None:
            self._room.hold()
        if not (self._is_blank and settled._is_blank):
            self.optimiser.copy_from(settled.optimiser)
        self._is_blank = False

    def carried(self) -> Carried:
        """In arrays that are good until the memory changes."""
        moments = self.optimiser.moments()
        vectors = moments.first_D, moments.second_D, self.residual_D
        return Carried(*vectors, moments.steps, self.id, self.file)

    def set(self, carried: Carried) -> None:
        if carried.is_lost:
            self.forget()
            return
        self.id, self._is_blank = None, False
        if carried.file is not None and carried.file == self.file:
            self.optimiser.steps.fill_(carried.adam_steps)
            return
        moments = Moments(carried.first_D, carried.second_D, carried.adam_steps)
        self.optimiser.set_moments(moments)
        if self._room is None or self._room.owes:  # else zeros would take room that none holds
            np.copyto(self.residual_D, carried.residual_D)


def two_memories(
    parameter_count: int, device: torch.device, owes: bool, directory: Path | None
) -> tuple[Memory, Memory]:
    """In two files of that directory, if one is given, which may hold anything.

    Raises UserError where it has no room, or a GPU has them.
    """
    if directory is None:
        return Memory(parameter_count, device), Memory(parameter_count, device)
    if device.type != "cpu":
        raise UserError(
            f"trainer.optimiser_in is files, and {device} trains with moments of its own: set it "
            "to memory, or trainer.device to cpu"
        )
    rooms = [MemoryFile(directory / name, parameter_count, owes) for name in NAMES]
    one, other = (Memory(parameter_count, device, room) for room in rooms)
    return one, other
