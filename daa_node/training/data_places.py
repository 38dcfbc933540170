"""Files of data: how a genesis names them, and where they lie on one host."""

from pathlib import Path

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


class DataPlaces(BaseModel):
    """Where this host has the files that the genesis names: each in place of the path there."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    path: Path | None = Field(None, description="of the data; null: as the genesis says")
    labels: Path | None = Field(None, description="of the pictures' labels (idx)")
    tokenizer: Path | None = Field(None, description="of the tokenizer's file")
