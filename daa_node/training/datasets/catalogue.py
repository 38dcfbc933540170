"""From a DataConfig to examples: the one place that knows every kind of data set."""

from pathlib import Path
from typing import assert_never

from blake3 import blake3

from daa_node.errors import UserError
from daa_node.training.config import DataConfig, ModelConfig
from daa_node.training.datasets.digits import Digits
from daa_node.training.datasets.examples import AnyArray, Examples
from daa_node.training.datasets.jsonl import map_jsonl
from daa_node.training.datasets.shakespeare import map_shakespeare
from daa_node.training.datasets.text import map_text
from daa_node.training.datasets.tokens import TokenWindows, check_vocabulary, map_tokens


def open_examples(data: DataConfig, model: ModelConfig, cache_dir: Path) -> Examples:
    """Maps the data and numbers its examples. Raises UserError naming the file and the remedy."""
    if (model.kind == "mlp") != (data.kind == "digits"):
        raise UserError(
            f"a model of kind {model.kind} does not train on data of kind {data.kind}: "
            "byte_gpt takes tokens, mlp takes digits"
        )
    if data.kind == "digits":
        return Digits(data.heldout_every, data.heldout_block_items)
    tokens = _map(data, cache_dir)
    where = data.path or Path("the embedded corpus")
    check_vocabulary(tokens, model.vocabulary, where)
    if data.digest is not None:
        found = blake3(tokens.data.cast("B")).hexdigest()
        if found != data.digest:
            raise UserError(
                f"{where}:1: the blake3 of its tokens is {found}, the genesis names "
                f"{data.digest}; copy the file that the network was made for"
            )
    return TokenWindows(
        tokens, model.context, data.heldout_every, data.heldout_block_items, str(where)
    )


def _map(data: DataConfig, cache_dir: Path) -> AnyArray:
    if data.kind == "shakespeare":
        return map_shakespeare(cache_dir)
    assert data.path is not None, "DataConfig refuses these kinds without a path"
    assert data.kind != "digits", "digits are no tokens"
    match data.kind:
        case "text":
            return map_text(data.path)
        case "jsonl":
            return map_jsonl(data.path, cache_dir)
        case "tokens":
            return map_tokens(data.path)
        case _:
            assert_never(data.kind)
