"""Files of data: how a genesis names them, and where they lie on one host."""

from pathlib import Path
from typing import Self

from pydantic import BaseModel, ConfigDict, Field

DIGEST_PATTERN = "^[0-9a-f]{64}$"


class DataFile(BaseModel):
    """One file that is the same on every host."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    path: Path | None = Field(
        None,
        description="where it lies unless config.yaml says otherwise, from the node's directory",
    )
    digest: str | None = Field(
        None,
        pattern=DIGEST_PATTERN,
        description="blake3 of its content; of a .gz, of what is in it",
    )


class TokenizerFile(DataFile):
    """What makes tokens of text."""

    document_end: str | None = Field(
        None, max_length=256, description="the token after each document of jsonl and parquet"
    )


class OwnFiles(BaseModel):
    """What this host alone trains on, where the genesis says `data: {kind: local}`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    path: Path | None = Field(None, description="of data that no other host needs to have")
    labels: Path | None = Field(None, description="of the labels of these pictures (idx)")

    def below(self, root: Path) -> Self:
        """Relative paths start at `root`."""
        found = {"path": self.path, "labels": self.labels}
        return self.model_copy(update={name: root / path for name, path in found.items() if path})


NO_FILES = OwnFiles()


class DataPlaces(BaseModel):
    """Where this host has the files that the genesis names: each in place of the path there."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    path: Path | None = Field(None, description="of the data; null: as the genesis says")
    labels: Path | None = Field(None, description="of the pictures' labels (idx)")
    tokenizer: Path | None = Field(None, description="of the tokenizer's file")
    own: OwnFiles = NO_FILES
