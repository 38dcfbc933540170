"""The worker's core, inline: error feedback, evaluation, devices, and learning itself."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from time import perf_counter

import numpy as np
import pytest
import torch

from daa_dag.ids import BlobRoot, Digest, NodeId
from daa_node.errors import TrainerFailed, UserError
from daa_node.seams import StateRef, TrainOrder
from daa_node.tensors import Float32Array, Int32Array
from daa_node.training.boundaries import Boundary, open_boundary
from daa_node.training.config import EvaluationConfig, InnerConfig, TrainingJob
from daa_node.training.core import (
    Core,
    SealedTraining,
    choose_device,
    device_among,
    open_core,
)
from daa_node.training.data_config import DataConfig
from daa_node.training.data_places import OwnFiles
from daa_node.training.genesis_state import genesis_weights
from daa_node.training.model_config import ModelConfig
from daa_node.updates.aggregation.rule import rule_named
from daa_node.updates.compression.codec import codec_named, decode
from daa_node.updates.config import UpdatesConfig
from daa_node.updates.grid import to_float32
from daa_node.updates.outer_step import (
    Contribution,
    OuterRates,
    OuterState,
    aggregate_and_step,
)
from tests.daa_node.training.datasets.picture_files import bars, write_idx

ALICE, BOB = NodeId(b"a" * 32), NodeId(b"b" * 32)
CPU = torch.device("cpu")
JOB = TrainingJob(
    model=ModelConfig(kind="mlp", depth=1, width=16),
    data=DataConfig(kind="digits"),
    inner=InnerConfig(lr=0.01, warmup_steps=0, batch_size=8),
    updates=UpdatesConfig(codec="int4", rule="mean", f_agg=0),
)
BASE_D = genesis_weights(JOB.model, 0)
NOWHERE = StateRef(BlobRoot(bytes(32)), BlobRoot(bytes(32)))


def order(round: int, merged_round: int = -1, **changes: object) -> TrainOrder:
    fields: dict[str, object] = {
        "base": NOWHERE,
        "seed": Digest(bytes([round]) * 32),
        "round": round,
        "author": ALICE,
        "steps_max": 5,
        "stop_after_s": 1e9,
        "codec": "int4",
        "first_step": 0,
        "merged_round": merged_round,
        "ahead_max": 4,
        **changes,
    }
    return TrainOrder(**fields)  # type: ignore[arg-type]


def core(tmp_path: Path, job: TrainingJob = JOB, device: torch.device = CPU) -> Core:
    return open_core(job, device, tmp_path, perf_counter)


def decoded(sealed: SealedTraining, codec: str = "int4", job: TrainingJob = JOB) -> Int32Array:
    count = job.model.parameter_count()
    return decode(codec_named(codec), sealed.blob, 0, count, count)


def wanted(sealed: SealedTraining) -> Float32Array:
    return to_float32(BASE_D) - sealed.trained.values_D


def test_a_merged_update_leaves_its_loss_to_the_next_one(tmp_path: Path) -> None:
    alone = core(tmp_path)
    first = alone.train_and_seal(order(1), BASE_D)
    owed = wanted(first) - decoded(first) * 2.0**-24
    assert np.abs(owed).max() > 0
    second = alone.train_and_seal(order(2, merged_round=1), BASE_D)
    residual = alone.inner_state().tried.residual_D
    sent = decoded(second) * 2.0**-24
    np.testing.assert_allclose(sent + residual, wanted(second) + owed, atol=1e-6)
    # Over rounds nothing is lost: all that was sent and is still owed is all that was wanted.


def settled(one: Core) -> bytes:
    """What the next round of this core would start from if nothing more is merged."""
    carried = one.inner_state().settled
    vectors = (carried.first_D, carried.second_D, carried.residual_D)
    return b"".join(vector.tobytes() for vector in vectors) + bytes([carried.adam_steps])


def end_of(sealed: SealedTraining) -> bytes:
    """What the round left to the next one if it is merged."""
    end = sealed.end
    assert end.residual_D is not None
    vectors = (end.first_D, end.second_D, end.residual_D)
    return b"".join(vector.tobytes() for vector in vectors) + bytes([end.adam_steps])


NOTHING = bytes(12 * BASE_D.size + 1)


def test_an_update_that_was_not_merged_is_dropped_whole(tmp_path: Path) -> None:
    one = core(tmp_path)
    left = end_of(one.train_and_seal(order(1), BASE_D))
    one.train_and_seal(order(2, merged_round=1), BASE_D)
    assert settled(one) == left != NOTHING
    third = one.train_and_seal(order(3, merged_round=1), BASE_D)  # round 2's was left out
    assert settled(one) == left
    left = end_of(third)
    one.train_and_seal(order(4, merged_round=3), BASE_D)
    assert settled(one) == left
    assert one.inner_state().settled.adam_steps == 10  # of rounds 1 and 3


def test_what_comes_after_a_dropped_update_is_as_if_it_had_never_been(tmp_path: Path) -> None:
    disturbed, quiet = core(tmp_path), core(tmp_path)
    for one in (disturbed, quiet):
        one.train_and_seal(order(1), BASE_D)
    disturbed.train_and_seal(order(2, merged_round=1), BASE_D)
    blobs = [
        one.train_and_seal(order(3, merged_round=1), BASE_D).blob for one in (disturbed, quiet)
    ]
    assert (blobs[0] == blobs[1]).all()


def test_a_failed_round_keeps_what_the_merged_one_left(tmp_path: Path) -> None:
    one = core(tmp_path)
    left = end_of(one.train_and_seal(order(1), BASE_D))
    with pytest.raises(TrainerFailed):
        one.train_and_seal(order(2, merged_round=1), BASE_D, is_cancelled=lambda: True)
    assert settled(one) == left
    one.train_and_seal(order(3, merged_round=1), BASE_D)
    assert settled(one) == left


def test_whoever_lost_what_the_merged_round_left_starts_from_nothing(tmp_path: Path) -> None:
    one, two = core(tmp_path), core(tmp_path)
    one.train_and_seal(order(1), BASE_D)
    one.train_and_seal(order(2, merged_round=1), BASE_D)
    two.set_inner_state(one.inner_state())  # saved, and then the worker died with all of round 3
    assert settled(two) != NOTHING
    two.train_and_seal(order(4, merged_round=3), BASE_D)
    assert settled(two) == NOTHING
    two.train_and_seal(order(5, merged_round=3), BASE_D)
    assert settled(two) == NOTHING
    left = end_of(two.train_and_seal(order(6, merged_round=3), BASE_D))
    two.train_and_seal(order(7, merged_round=6), BASE_D)
    assert settled(two) == left


def test_divergence_is_said_and_leaves_no_poison_behind(tmp_path: Path) -> None:
    one, fresh = core(tmp_path), core(tmp_path)
    one.train_and_seal(order(1), BASE_D)
    state = one.inner_state()
    poison_D = np.full_like(state.tried.first_D, np.nan)
    one.set_inner_state(replace(state, tried=replace(state.tried, first_D=poison_D)))
    with pytest.raises(TrainerFailed, match="diverged"):
        one.train_and_seal(order(2, merged_round=1), BASE_D)
    assert settled(one) == NOTHING
    blobs = [c.train_and_seal(order(3, merged_round=1), BASE_D).blob for c in (one, fresh)]
    assert (blobs[0] == blobs[1]).all()


def test_boundaries_are_the_states_that_rounds_of_fewer_steps_end_in(tmp_path: Path) -> None:
    one, passed = core(tmp_path), list[bytes]()

    def note(boundary: Boundary) -> None:
        passed.append(b"".join(boundary.parts()))

    first = one.train_and_seal(order(1), BASE_D)
    left = end_of(first)
    task = order(2, merged_round=1, steps_max=7, segment_steps=3)
    sealed = one.train_and_seal(task, BASE_D, on_boundary=note)
    assert [view(blob).adam_steps for blob in passed] == [5, 8, 11]
    assert sealed.end.adam_steps == 12
    start = view(passed[0])
    assert (start.weights_D == to_float32(BASE_D)).all()
    assert passed[0][start.weights_D.nbytes : -8] == left[:-1]
    for steps, blob in zip((3, 6), passed[1:], strict=True):
        shorter = core(tmp_path)
        shorter.train_and_seal(order(1), BASE_D)
        whole = shorter.train_and_seal(order(2, merged_round=1, steps_max=steps), BASE_D).end
        assert (view(blob).weights_D == whole.weights_D).all()
        assert (view(blob).second_D == whole.second_D).all()
        assert blob[12 * BASE_D.size :][: 4 * BASE_D.size] == passed[0][12 * BASE_D.size : -8]
    owed_D = one.inner_state().tried.residual_D
    assert sealed.end.residual_D is not None
    assert (sealed.end.residual_D == owed_D).all()
    assert start.residual_D is not None
    assert (owed_D != start.residual_D).any()


def view(blob: bytes) -> Boundary:
    return open_boundary(np.frombuffer(blob, np.uint8), BASE_D.size, error_feedback=True)


def test_where_nobody_is_checked_no_boundary_is_made(tmp_path: Path) -> None:
    passed: list[Boundary] = []
    core(tmp_path).train_and_seal(order(1), BASE_D, on_boundary=passed.append)
    assert not passed


def test_a_worker_that_takes_over_the_saved_state_goes_on_bit_for_bit(tmp_path: Path) -> None:
    first, second = core(tmp_path), core(tmp_path)
    first.train_and_seal(order(1), BASE_D)
    second.set_inner_state(first.inner_state())
    expected = first.train_and_seal(order(2, merged_round=1), BASE_D)
    taken_over = second.train_and_seal(order(2, merged_round=1), BASE_D)
    assert (taken_over.blob == expected.blob).all()
    fresh = core(tmp_path).train_and_seal(order(2, merged_round=1), BASE_D)
    assert (fresh.blob != expected.blob).any()


def test_without_error_feedback_nothing_is_ever_owed(tmp_path: Path) -> None:
    updates = JOB.updates.model_copy(update={"error_feedback": False})
    one = core(tmp_path, JOB.model_copy(update={"updates": updates}))
    one.train_and_seal(order(1), BASE_D)
    one.train_and_seal(order(2, merged_round=1), BASE_D)
    assert not one.inner_state().settled.residual_D.any()
    assert one.train_and_seal(order(3, merged_round=2), BASE_D).end.residual_D is None


def test_evaluation_repeats_exactly_and_does_not_disturb_training(tmp_path: Path) -> None:
    watched, unwatched = core(tmp_path), core(tmp_path)
    before = watched.evaluate(BASE_D)
    assert before == watched.evaluate(BASE_D) == pytest.approx(np.log(10), abs=1e-4)
    watched.train_and_seal(order(1), BASE_D)
    unwatched.train_and_seal(order(1), BASE_D)
    watched.evaluate(BASE_D)
    one = watched.train_and_seal(order(2), BASE_D)
    assert (one.blob == unwatched.train_and_seal(order(2), BASE_D).blob).all()


def test_a_codec_that_nobody_knows_fails_the_order(tmp_path: Path) -> None:
    with pytest.raises(TrainerFailed, match="no codec is named"):
        core(tmp_path).train_and_seal(order(1, codec="int9"), BASE_D)


def outer_rounds(job: TrainingJob, cores: list[Core], rounds: int, steps: int) -> list[float]:
    """DiLoCo as the daemons run it: held-out losses before the first round and after each."""
    count = job.model.parameter_count()
    state = OuterState(genesis_weights(job.model, job.seed), np.zeros(count, np.int32))
    rates = OuterRates(job.updates.outer_lr, job.updates.outer_momentum)
    losses = [cores[0].evaluate(state.weights_D)]
    for round in range(1, rounds + 1):
        contributions = []
        for index, one in enumerate(cores):
            task = order(
                round,
                merged_round=round - 1 if round > 1 else -1,
                author=NodeId(bytes([index]) * 32),
                steps_max=steps,
                codec=job.updates.codec,
                first_step=(round - 1) * steps,
            )
            blob = one.train_and_seal(task, state.weights_D).blob
            contributions.append(Contribution(blob, job.updates.codec, 1))
        out = OuterState(np.empty(count, np.int32), np.empty(count, np.int32))
        rule = rule_named(job.updates.rule)
        f_agg = job.updates.f_agg_among(len(contributions))
        delta_format = job.updates.delta_format
        aggregate_and_step(state, contributions, rule, f_agg, rates, out, delta_format)
        state = out
        losses.append(cores[0].evaluate(state.weights_D))
    return losses


def test_four_workers_teach_a_byte_gpt_some_shakespeare(tmp_path: Path) -> None:
    job = TrainingJob(
        model=ModelConfig(width=64, depth=2, context=32),
        inner=InnerConfig(lr=0.006, warmup_steps=10, total_steps=60, batch_size=4),
        evaluation=EvaluationConfig(windows=64),
    )
    losses = outer_rounds(job, [core(tmp_path, job) for _ in range(4)], rounds=3, steps=20)
    assert losses[0] == pytest.approx(5.55, abs=0.15)  # ln 256 = 5.545
    assert losses[3] < 3.1  # the frequencies of single bytes alone come to 3.3
    assert losses == sorted(losses, reverse=True)


def test_four_workers_learn_digits(tmp_path: Path) -> None:
    job = JOB.model_copy(update={"updates": UpdatesConfig(rule="trimmed_mean", f_agg=1)})
    losses = outer_rounds(job, [core(tmp_path, job) for _ in range(4)], rounds=4, steps=20)
    assert losses[4] < 0.6 < losses[0]


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Threads of a small convolution wait for each other where others want the processor, too."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def test_four_workers_learn_pictures_of_their_own_file_with_a_cnn(
    tmp_path: Path, one_thread: None
) -> None:
    job = JOB.model_copy(
        update={
            "model": ModelConfig(kind="cnn", depth=2, width=8, picture_side=10),
            "data": write_idx(tmp_path / "data", *bars(400, 10), packed=True),
            "updates": UpdatesConfig(rule="trimmed_mean", f_agg=1),
        }
    )
    losses = outer_rounds(job, [core(tmp_path, job) for _ in range(4)], rounds=3, steps=20)
    assert losses[0] == pytest.approx(np.log(10), abs=0.01)
    assert losses[3] < 0.3


def test_four_workers_with_data_of_their_own_learn_what_is_held_out_for_all(
    tmp_path: Path, one_thread: None
) -> None:
    pixels, labels = bars(200, 10)
    cores = []
    for index in range(4):  # nobody has seen all of the classes
        some = np.isin(labels, [(3 * index + k) % 10 for k in range(4)])
        mine = write_idx(tmp_path / f"own-{index}", pixels[some], labels[some])
        common = write_idx(tmp_path / "heldout", *bars(100, 10, seed=9))
        assert mine.labels is not None
        job = JOB.model_copy(
            update={
                "model": ModelConfig(kind="cnn", depth=2, width=8, picture_side=10),
                "data": common.model_copy(update={"kind": "local", "format": "idx"}),
                "own": OwnFiles(path=mine.path, labels=mine.labels.path),
                "updates": UpdatesConfig(rule="mean", f_agg=0),
            }
        )
        cores.append(core(tmp_path, job))
    losses = outer_rounds(job, cores, rounds=4, steps=20)
    assert losses[0] == pytest.approx(np.log(10), abs=0.01)
    assert losses[4] < 1.0


def test_the_device_is_the_best_there_is_and_a_missing_one_is_named() -> None:
    assert choose_device("cpu") == CPU
    best = choose_device("auto").type
    assert best == "cuda" if torch.cuda.is_available() else best in ("cpu", "mps")
    if torch.cuda.is_available():
        pytest.skip("this machine has the device whose absence is tested")
    with pytest.raises(UserError, match="device is cuda, and torch finds only: .*cpu; or use auto"):
        choose_device("cuda")


def test_a_gpu_that_is_broken_is_named_and_does_not_keep_the_cpu_from_work(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(_index: int) -> str:
        raise RuntimeError("CUDA driver initialization failed\nand more")

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_name", broken)
    assert choose_device("cpu") == CPU
    for name in ("auto", "cuda", "cuda:0"):
        with pytest.raises(UserError, match=f"is {name}, and .*initialization failed. Take"):
            choose_device(name)


def test_a_gpu_is_named_by_its_number_and_a_number_too_high_with_those_there_are() -> None:
    found = {"cuda:0": "NVIDIA H100", "cuda:1": "NVIDIA A10", "cpu": ""}
    named = {name: device_among(found, name) for name in ("auto", "cuda", "cuda:1", "cpu")}
    assert named == {"auto": "cuda", "cuda": "cuda", "cuda:1": "cuda:1", "cpu": "cpu"}
    with pytest.raises(UserError) as refused:
        device_among(found, "cuda:2")
    assert str(refused.value) == (
        "trainer.device is cuda:2, and torch finds only: cuda:0 (NVIDIA H100), "
        "cuda:1 (NVIDIA A10), cpu; or use auto"
    )


@pytest.mark.skipif(
    choose_device("auto").type == "cpu", reason="torch finds neither a CUDA nor an MPS device here"
)
def test_an_accelerator_learns_as_the_cpu_does(tmp_path: Path) -> None:
    job = JOB.model_copy(
        update={
            "model": ModelConfig(width=64, depth=2, context=32),
            "data": DataConfig(),
            "evaluation": EvaluationConfig(windows=64),
        }
    )
    base_D = genesis_weights(job.model, 0)
    on_cpu, on_device = core(tmp_path, job), core(tmp_path, job, choose_device("auto"))
    assert on_device.evaluate(base_D) == pytest.approx(on_cpu.evaluate(base_D), rel=1e-3)
    ours = on_device.train_and_seal(order(1, steps_max=10), base_D)
    theirs = on_cpu.train_and_seal(order(1, steps_max=10), base_D)
    assert ours.trained.loss_nats == pytest.approx(theirs.trained.loss_nats, rel=1e-2)
    distance = np.linalg.norm(ours.trained.values_D - theirs.trained.values_D)
    assert distance < 0.05 * np.linalg.norm(theirs.trained.values_D - to_float32(base_D))
