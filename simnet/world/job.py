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
from simnet.world.scenario import Scenario

MS_PER_S = 1000
BATCH = 32  # pictures of an inner step
EVALUATED = 160  # held-out pictures a node judges each state by


def job_of(scenario: Scenario) -> Job:
    """What the chain id covers, of this scenario."""
    work = scenario.work
    return Job(
        name=scenario.name,
        seed=scenario.seed,
        model=ModelConfig(kind="mlp", depth=1, width=32),
        data=DataConfig(kind="digits"),
        inner=InnerConfig(
            lr=0.01,
            warmup_steps=10,
            total_steps=work.rounds * work.inner_steps_max,
            batch_size=work.tokens_per_step if scenario.is_nominal else BATCH,
        ),
        evaluation=EvaluationConfig(windows=EVALUATED, batch_windows=EVALUATED),
        updates=work.updates,
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
