"""Documents made into a token file in the worker's cache once, and mapped from there.

The file's name has the key of what it was made from and the digest of what it holds, so that one
that was damaged since is made again.
"""

import os
from collections.abc import Callable, Iterable
from pathlib import Path

from daa_dag import canonical
from daa_dag.ids import digest_of
from daa_node.errors import UserError
from daa_node.training.datasets.examples import AnyArray
from daa_node.training.datasets.files import NAME_CHARACTERS, digest_of_content
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
    try:
        for known in sorted(cache_dir.glob(f"{key}-*.tokens")):
            if known.stem.rpartition("-")[2] == digest_of_content(known)[:NAME_CHARACTERS]:
                return map_tokens(known)
            known.unlink()
        cache_dir.mkdir(parents=True, exist_ok=True)
        scratch = cache_dir / f".{key}.{os.getpid()}.tokens"
        write_tokens(scratch, make(), token_bytes)
        done = cache_dir / f"{key}-{digest_of_content(scratch)[:NAME_CHARACTERS]}.tokens"
        os.replace(scratch, done)
    except OSError as fault:
        why = fault.strerror or fault
        raise UserError(f"cannot keep converted data in {cache_dir}: {why}") from None
    return map_tokens(done)
