"""Documents made into a token file in the worker's cache once, and mapped from there."""

from collections.abc import Callable, Iterable
from pathlib import Path

from daa_dag import canonical
from daa_dag.ids import digest_of
from daa_node.training.datasets.examples import AnyArray
from daa_node.training.datasets.files import NAME_CHARACTERS, kept_or_made
from daa_node.training.datasets.tokens import map_tokens, write_tokens


def converted(
    made_from: list[str],
    cache_dir: Path,
    token_bytes: int,
    make: Callable[[], Iterable[AnyArray]],
) -> AnyArray:
    """The tokens that `make` yields, made only if they are not in the cache.

    `made_from` names all that they follow from. Raises UserError, as `make` may.
    """
    key = digest_of(canonical.encode(made_from)).hex()[:NAME_CHARACTERS]
    made, _ = kept_or_made(
        cache_dir,
        key,
        ".tokens",
        "keep converted data",
        lambda scratch: write_tokens(scratch, make(), token_bytes),
    )
    return map_tokens(made)
