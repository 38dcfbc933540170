"""What the model has learned, for a person to read: text from the newest certified checkpoint."""

from pathlib import Path

from daa_node.adapters.asked_process import sample_bytes
from daa_node.adapters.system_clock import SystemEntropy
from daa_node.checkpoints.beside import temporary_room
from daa_node.checkpoints.export import Room, replayed_state
from daa_node.checkpoints.files import ChainFiles
from daa_node.checkpoints.own_chain import own_chain
from daa_node.checkpoints.replay import WEIGHTS
from daa_node.cli import checkpoint, identity, report
from daa_node.cli.compose import training_job
from daa_node.errors import UserError
from daa_node.genesis import Job, chain_facts
from daa_node.training.data_config import DOCUMENTS
from daa_node.training.module_config import check_allowed
from daa_node.training.torch_there import need_torch

TOKENS_MAX = 100_000
TEXTS = ("shakespeare", *DOCUMENTS)  # kinds of data whose tokens are bytes, or a tokenizer's
SEED_BYTES = 4
SEED_MAX = 2**63 - 1


def sample(
    root: Path, prompt: str, tokens: int, temperature: float, seed: int | None, as_json: bool
) -> None:
    """Print `tokens` tokens that the model goes on with. Needs no daemon. Raises UserError."""
    need_torch("sample")
    if not 1 <= tokens <= TOKENS_MAX:
        raise UserError(f"--tokens {tokens}: 1 to {TOKENS_MAX}")
    if not 0 <= temperature <= 100:
        raise UserError(f"--temperature {temperature:g}: 0 to 100; 0 takes the likeliest token")
    if seed is not None and not 0 <= seed <= SEED_MAX:
        raise UserError(f"--seed {seed}: 0 to {SEED_MAX}")
    if not prompt:
        raise UserError("--prompt is empty: give one character at least")
    directory, made = checkpoint.open_chain(root)
    config = identity.open_config(directory).value
    trainer = identity.trainer_settings(config, directory)
    _check_writes(made.job)
    job = training_job(made, directory, config)
    if made.job.model.path is not None:
        check_allowed(made.job.model.path, trainer.allow_modules)
    facts = chain_facts(made)
    files = ChainFiles(directory.chain)
    past = own_chain(files, facts)
    vertex = past.find("tip")
    if seed is None:
        seed = int.from_bytes(SystemEntropy().bytes(SEED_BYTES), "big")
    request = {
        "prompt": prompt.encode(errors="surrogateescape").hex(),
        "count": tokens,
        "temperature": temperature,
        "seed": seed,
        "cache": str(directory.trainer / "cache"),
    }
    with temporary_room() as room:
        replayed_state(past, vertex, facts.states, Room(room, files))
        written = sample_bytes(job, trainer, room / WEIGHTS, request)
    text = written.decode(errors="replace")
    if as_json:
        answer = {
            "height": vertex.height,
            "vertex_id": vertex.vertex_id.hex(),
            "prompt": prompt,
            "text": text,
            "seed": seed,
        }
        report.put_json(answer)
        return
    report.note(f"height {vertex.height}, {vertex.tokens_total} tokens trained; --seed {seed}")
    report.put(prompt + text)


def _check_writes(job: Job) -> None:
    """Raises UserError unless the network trains a language model on texts."""
    kind = job.data.items_kind
    if kind not in TEXTS:
        raise UserError(
            f"a model of kind {job.model.kind} on data of kind {kind} writes no text: sample is "
            f"for language models on data of kind {', '.join(sorted(TEXTS))}"
        )
