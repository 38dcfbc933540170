"""How a network trains, what one worker has to do, and a node's own worker settings.

Everything but `TrainerConfig` is the same on every node, because it is part of what the chain id
names.
"""

import re
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    model_validator,
)

from daa_dag.ids import Digest, digest_of
from daa_node.training.data_config import DataConfig
from daa_node.training.data_places import (
    NO_FILES,
    OwnFiles,
)
from daa_node.training.model_config import ModelConfig
from daa_node.training.module_config import (
    PACKAGE,
)
from daa_node.updates.config import UpdatesConfig

RANKS_MAX = 16  # devices of one host
_DEVICE = re.compile("auto|cpu|mps|cuda(:(0|[1-9][0-9]{0,2}))?")


def _is_device(text: str) -> str:
    if _DEVICE.fullmatch(text) is None:
        raise ValueError(
            f"{text!r} is no device: auto, cpu, cuda, mps, or one GPU by its number, from cuda:0 on"
        )
    return text


Device = Annotated[str, AfterValidator(_is_device)]


class InnerConfig(BaseModel):
    """AdamW on one node between two outer steps (Loshchilov and Hutter 2019)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    lr: float = Field(4e-3, gt=0, le=1, description="the highest learning rate, after warm-up")
    lr_final_fraction: float = Field(0.1, ge=0, le=1, description="of lr, where the cosine ends")
    warmup_steps: int = Field(20, ge=0, le=10**9, description="from nothing up to lr")
    total_steps: int = Field(400, ge=1, le=10**9, description="of one author, for the cosine")
    batch_size: int = Field(4, ge=1, le=65_536, description="windows (or examples) a step")
    weight_decay: float = Field(0.1, ge=0, le=10, description="decoupled, as AdamW has it")
    beta1: float = Field(0.9, ge=0, lt=1, description="decay of the first moment")
    beta2: float = Field(0.95, ge=0, lt=1, description="decay of the second moment")
    grad_clip: float = Field(1.0, gt=0, le=1e6, description="L2 norm of one step's gradient")


class EvaluationConfig(BaseModel):
    """Held-out loss: how many windows (or examples), evenly spread over what is held out."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    windows: int = Field(160, ge=1, le=1_000_000, description="windows (or examples) of it")
    batch_windows: int = Field(32, ge=1, le=65_536, description="of these at a time")


class TrainingJob(BaseModel):
    """All that a genesis says about the work of one worker."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    model: ModelConfig = ModelConfig()
    data: DataConfig = DataConfig()
    own: OwnFiles = NO_FILES  # of this host, not of the genesis
    inner: InnerConfig = InnerConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    updates: UpdatesConfig = UpdatesConfig()
    seed: int = Field(0, ge=0, lt=2**63)

    def digest(self) -> Digest:
        """Names the job in this node's own files; not an id that others see."""
        # a file may be moved
        parts = {"model": self.model.anywhere(), "data": self.data.anywhere(), "own": NO_FILES}
        job = self.model_copy(update=parts)
        return digest_of(job.model_dump_json().encode())


class TrainerConfig(BaseModel):
    """One node's worker process: what this machine has and how much of it may be used."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    contribute: bool = Field(
        True, description="false: vote, merge and serve, and never train; this needs no PyTorch"
    )
    device: Device = Field(
        "auto", description="auto, cpu, cuda, mps, or cuda:1 for the second GPU of this machine"
    )
    devices: tuple[Device, ...] = Field(
        (),
        max_length=RANKS_MAX,
        description="several of this machine that take each step together, a process each; "
        "[cuda:0, cuda:1]",
    )
    threads: int = Field(1, ge=1, le=1024, description="CPU threads of each process")
    niceness: int = Field(5, ge=0, le=19, description="how far training yields to other programs")
    optimiser_in: Literal["memory", "files"] = Field(
        "memory",
        description="where AdamW's moments and what is owed lie; files: 24 bytes a parameter of "
        "disk, mapped",
    )
    start_timeout_s: float = Field(120.0, gt=0, description="for torch, and to map the data")
    heartbeat_timeout_s: float = Field(
        8.0,
        gt=0,
        description="after which a silent worker is taken for dead; it beats twice a second",
    )
    order_timeout_s: float = Field(900.0, gt=0, description="for one order, beyond its own time")
    allow_modules: tuple[Annotated[str, Field(pattern=PACKAGE)], ...] = Field(
        (), description="packages whose code a job's model may run here; none unless named"
    )
    module_path: Path | None = Field(
        None, description="directory with these packages, where they are not installed"
    )

    @model_validator(mode="after")
    def _devices_are_alike(self) -> Self:
        if self.devices and self.device != "auto":
            raise ValueError("name the devices in trainer.devices alone, and no trainer.device")
        are_gpus = bool(self.devices) and all(name.startswith("cuda:") for name in self.devices)
        if are_gpus and len(set(self.devices)) < len(self.devices):
            raise ValueError("trainer.devices names a GPU twice; one process has each")
        if not are_gpus and set(self.devices) - {"cpu"}:
            raise ValueError("trainer.devices are GPUs by their numbers, [cuda:0, cuda:1], or cpu")
        return self
