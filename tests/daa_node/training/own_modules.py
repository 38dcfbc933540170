"""Models that somebody brings, as files of a package outside of this project."""

from pathlib import Path

from daa_node.training.config import InnerConfig, TrainingJob
from daa_node.training.data_config import DataConfig
from daa_node.training.model_config import ModelConfig
from daa_node.training.module_config import BuiltModule
from daa_node.training.module_source import ModuleAccess

PACKAGE = "somebodys_model"
LANGUAGE_MODEL = """
import torch
import torch.nn.functional as F
from torch import nn


class Model(nn.Module):
    def __init__(self, width, bias):
        super().__init__()
        self.embedding = nn.Embedding(256, width)
        self.norm = nn.LayerNorm(width)
        self.rnn = nn.GRU(width, width, batch_first=True)
        self.head = nn.Linear(width, 256, bias=bias)

    def logits(self, inputs):
        return self.head(self.rnn(self.norm(self.embedding(inputs)))[0])

    def forward(self, inputs, targets):
        return F.cross_entropy(self.logits(inputs).flatten(0, 1), targets.flatten())


def build(width=16, bias=False):
    return Model(width, bias)
"""
# a perceptron on pictures; CHANGES stands for what a test adds to it
PICTURES = """
import torch
import torch.nn.functional as F
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(64, 8)
        self.head = nn.Linear(8, 10)
        self.extra()

    def extra(self):
        pass

    def hidden(self, inputs):
        return self.layer(inputs).relu()

    def forward(self, inputs, targets):
        return F.cross_entropy(self.head(self.hidden(inputs)), targets)

CHANGES

def build():
    return Model()
"""


def pictures(changes: str = "") -> str:
    """The perceptron, with methods of it that are otherwise."""
    lines = [f"    {line}" for line in changes.splitlines()]
    return PICTURES.replace("CHANGES", "\n".join(lines))


def write_package(directory: Path, text: str = LANGUAGE_MODEL) -> Path:
    """`somebodys_model.model` in that directory; its file."""
    package = directory / PACKAGE
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "model.py").write_text(text)
    return package / "model.py"


def access(directory: Path) -> ModuleAccess:
    return ModuleAccess((PACKAGE,), directory)


def job_of(data: str = "digits", **arguments: object) -> TrainingJob:
    """Before its genesis is made."""
    return TrainingJob(
        model=ModelConfig.model_validate(
            {
                "kind": "module",
                "path": f"{PACKAGE}.model:build",
                "arguments": arguments,
                "context": 12,
            }
        ),
        data=DataConfig.model_validate({"kind": data}),
        inner=InnerConfig(lr=0.01, warmup_steps=0, batch_size=8),
        seed=3,
    )


def built(job: TrainingJob, found: BuiltModule) -> TrainingJob:
    """The job as a genesis has it."""
    model = ModelConfig.model_validate({**job.model.model_dump(), "built": found})
    return job.model_copy(update={"model": model})
