"""What a simulated network of whole daemons trains, in virtual time or for real.

The job is a small real one, a perceptron on the handwritten digits that come with the package, with
the scenario's rounds, steps and times.
"""

from daa_node.agreement.config import AgreementConfig
from daa_node.checkpoints.config import CheckpointsConfig
from daa_node.genesis import Job
from daa_node.rounds.config import EndConfig, RoundsConfig
from daa_node.training.config import EvaluationConfig, InnerConfig
from daa_node.training.data_config import DataConfig
from daa_node.training.model_config import ModelConfig
from daa_node.updates.compression.codec import sizes_of
from daa_node.updates.config import CHUNK_BYTES_MIN
from simnet.world.scenario import Scenario

MS_PER_S = 1000
WIDTH_CUT = 2100  # 158k parameters, of which an update of top_k has 3.2 kB: room for 48 chunks
BATCH = 32  # pictures of an inner step
EVALUATED = 160  # held-out pictures a node judges each state by


def cuts_updates(scenario: Scenario) -> bool:
    """Whether updates that only weigh something travel in parts, `work.chunks` of each.

    Where all train on, that is: there they are as large as links allow.
    """
    return scenario.is_nominal and scenario.work.train_on


def job_of(scenario: Scenario) -> Job:
    """What the chain id covers, of this scenario."""
    work = scenario.work
    model = ModelConfig(kind="mlp", depth=1, width=32)
    updates = work.updates
    if cuts_updates(scenario):
        model = ModelConfig(kind="mlp", depth=1, width=WIDTH_CUT)
        size_bytes = sizes_of((work.codec,), model.parameter_count())[work.codec]
        chunk_bytes = max(CHUNK_BYTES_MIN, -(-size_bytes // work.chunks))
        updates = updates.model_copy(update={"chunk_bytes": chunk_bytes})
    return Job(
        name=scenario.name,
        seed=scenario.seed,
        model=model,
        data=DataConfig(kind="digits"),
        inner=InnerConfig(
            lr=0.01,
            warmup_steps=10,
            total_steps=work.rounds * work.inner_steps_max,
            batch_size=work.tokens_per_step if scenario.is_nominal else BATCH,
        ),
        evaluation=EvaluationConfig(windows=EVALUATED, batch_windows=EVALUATED),
        updates=updates,
        rounds=RoundsConfig(
            inner_steps_max=work.inner_steps_max,
            window_ms=round(work.window_s * MS_PER_S),
            exec_ms=round(work.window_s * MS_PER_S),
        ),
        agreement=AgreementConfig(
            delta_ms=work.delta_ms,
            view_timeout_cap_ms=max(12_000, 12 * work.delta_ms),  # two doublings at the least
            epoch_rounds=work.epoch_rounds,
            objection_rounds=work.epoch_rounds,  # one epoch: a run is short
        ),
        checkpoints=CheckpointsConfig(snapshot_every=work.snapshot_every),
        spot_checks=work.spot_checks,
        trainers=work.trainers,
        end=EndConfig(rounds=work.rounds),
    )
