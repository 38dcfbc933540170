"""What a genesis fixes about updates: codec, rule, outer rates and the bounds of an offer."""

from fractions import Fraction
from math import isfinite
from typing import Any, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

from daa_consensus.committee import lying_trainers_max
from daa_dag.chunking import CHUNK_BYTES_MAX, CHUNKS_MAX
from daa_node.updates.aggregation.rule import rule_named
from daa_node.updates.compression.codec import (
    CODEC_NAMES,
    bits_per_parameter,
    codec_named,
    sizes_of,
)
from daa_node.updates.compression.delta import DeltaFormat, delta_format_of
from daa_node.updates.grid import GRID_ONE, RATE_TERM_MAX

OUTER_LR_MAX = 4
CHUNK_BYTES_MIN = 64  # twice its digest
F_AGG_MAX = 1024  # far above any set of contributors; keeps the arithmetic of bounds small


class UpdatesConfig(BaseModel):
    """Rates are rationals [numerator, denominator]; norms are in units of the weights."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    codec: Literal["int8", "int4", "top_k"] = Field(
        "int8", description="how updates are coded; a node may take one of fewer bits"
    )
    rule: Literal["mean", "trimmed_mean"] = Field(
        "trimmed_mean", description="how they are merged; a mean holds off no liar"
    )
    f_agg: int | None = Field(
        None,
        description="how many contributors may be bad; null: a third of the validators",
    )
    # DiLoCo, section 3.1
    outer_lr: tuple[int, int] = Field(
        (7, 10), description="step along the merged update, as a fraction"
    )
    # 0.9 lost at demo size: it must follow H and rounds
    outer_momentum: tuple[int, int] = Field(
        (6, 10), description="Nesterov momentum of the outer step, as a fraction"
    )
    clip_norm: float | None = Field(
        None, description="L2 norm to which an update is cut before it is coded; null: not at all"
    )
    norm_cap: float | None = Field(
        1024.0, description="an update whose L2 norm is above it is refused; null: none is"
    )
    error_feedback: bool = Field(
        True, description="add to the next update what coding has lost of this one"
    )
    train_on: bool = Field(  # see training.ahead
        False, description="train while updates travel; spot checks must be off then"
    )
    # Of an update or a delta: a blob of fewer than twelve chunks comes from who has it whole, so
    # small updates over thin links want small ones. Each chunk costs a digest, of 32 bytes.
    chunk_bytes: int = Field(
        CHUNK_BYTES_MAX,
        ge=CHUNK_BYTES_MIN,
        le=CHUNK_BYTES_MAX,
        description="pieces in which updates and deltas travel",
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        lr, momentum = (
            _rate("outer_lr", self.outer_lr),
            _rate("outer_momentum", self.outer_momentum),
        )
        if not 0 < lr <= OUTER_LR_MAX:
            raise ValueError(f"outer_lr is {lr}; it must be above 0 and at most {OUTER_LR_MAX}")
        if not 0 <= momentum < 1:
            raise ValueError(f"outer_momentum is {momentum}; it must be at least 0 and under 1")
        if self.f_agg is not None and not 0 <= self.f_agg <= F_AGG_MAX:
            raise ValueError(f"f_agg is {self.f_agg}; 0 to {F_AGG_MAX} are allowed")
        if self.rule == "mean" and self.f_agg:
            raise ValueError(f"rule mean tolerates f_agg 0, not {self.f_agg}; use trimmed_mean")
        unfit = self._why_unfit()
        if unfit is not None:
            raise ValueError(unfit)
        for name, norm in (("clip_norm", self.clip_norm), ("norm_cap", self.norm_cap)):
            if norm is not None and not (isfinite(norm) and norm > 0):
                raise ValueError(f"{name} is {norm}; it must be a finite number above 0, or null")
        return self

    @model_serializer(mode="wrap")
    def _what_is_said(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """What is as it was before anybody could say so is not written."""
        given: dict[str, Any] = handler(self)
        if not self.train_on:
            del given["train_on"]
        if self.chunk_bytes == CHUNK_BYTES_MAX:
            del given["chunk_bytes"]
        return given

    def f_agg_among(self, contributors: int) -> int:
        """How many of so many contributors that vote may be arbitrarily bad.

        By default as many as consensus survives among that many: with 3f + 1 contributors, f of
        them lying and f of them away, the f + 1 that remain are still more than the liars.
        """
        if self.rule == "mean":
            return 0
        return max(0, contributors - 1) // 3 if self.f_agg is None else self.f_agg

    def why_too_fine(self, parameter_count: int) -> str | None:
        """Why an update or a delta of so many parameters is too large for its chunks, if it is."""
        most = max(
            self.delta_format.size_bytes_max(parameter_count),
            *sizes_of(self.codecs, parameter_count).values(),
        )
        if most <= CHUNKS_MAX * self.chunk_bytes:
            return None
        return (
            f"updates: chunk_bytes is {self.chunk_bytes}, and an update or a delta of {most} bytes"
            f" has {CHUNKS_MAX} chunks at most; {-(-most // CHUNKS_MAX)} or more will do"
        )

    def check_bounds(self, members: int, trainers: int) -> None:
        """Raises RuleUnbounded unless the rule merges all members alone, and trainers with them.

        Of a set with trainers `f_agg` is larger, see rounds.plan.
        """
        rule, f_agg = rule_named(self.rule), self.f_agg_among(members)
        rule.check_bound(members, f_agg)
        if trainers and self.rule != "mean":
            rule.check_bound(members + trainers, f_agg + lying_trainers_max(trainers))

    @property
    def codecs(self) -> tuple[str, ...]:
        """What a node may offer in: the ceiling, or one of fewer bits a parameter that owes alike.

        The residual of a sparse codec is many rounds' worth: a dense one would send it at once.
        """
        ceiling = codec_named(self.codec)
        return tuple(
            name
            for name in CODEC_NAMES
            if bits_per_parameter(codec_named(name)) <= bits_per_parameter(ceiling)
            and codec_named(name).residual_share == ceiling.residual_share
        )

    def _why_unfit(self) -> str | None:
        """What the codec would do harm by."""
        if self.codec != "top_k":
            return None
        if self.rule != "mean":
            return (
                f"rule {self.rule} drops what few send, and of codec top_k nearly everything is"
                " sent by few: use rule mean with f_agg 0, or codec int4"
            )
        if not self.error_feedback:
            return "codec top_k sends one parameter in 64: it needs error_feedback for the others"
        return None

    def why_uncheckable(self, reveals: bool) -> str | None:
        """Why nobody could train again what an author says it has trained; None if anybody can.

        `reveals`: whether the job has authors show their batches.
        """
        if not self.train_on:
            return None
        also = " and leave data.reveal out" if reveals else ""
        return (
            "updates: with train_on an author's steps begin before their round, where nobody can"
            f" take them again: set spot_checks.share to [0, 1]{also}, which gives up that who only"
            " says that it trains is found, or train_on to false"
        )

    @property
    def delta_format(self) -> DeltaFormat:
        """How the aggregate of a round is coded."""
        return delta_format_of(self.codec)

    @property
    def norm_cap_squared(self) -> int | None:
        """The cap on the integer squared norm of a decoded update, in grid units squared."""
        if self.norm_cap is None:
            return None
        return int(Fraction(self.norm_cap) ** 2 * GRID_ONE**2)  # a float is an exact fraction


def _rate(name: str, terms: tuple[int, int]) -> Fraction:
    numerator, denominator = terms
    if denominator <= 0:
        raise ValueError(f"{name} is [{numerator}, {denominator}]; the denominator must be above 0")
    if max(abs(numerator), denominator) > RATE_TERM_MAX:
        raise ValueError(f"{name} is [{numerator}, {denominator}]; its terms go to {RATE_TERM_MAX}")
    return Fraction(numerator, denominator)
