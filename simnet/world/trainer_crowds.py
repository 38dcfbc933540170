"""A crowd of trainers around few validators: who may enroll, and what one round has of them."""

from pydantic import BaseModel, ConfigDict, Field

from daa_consensus.committee import CONTRIBUTORS_MAX


class CrowdConfig(BaseModel):
    """Of whole rounds on the heap."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    contributors_max: int = Field(
        CONTRIBUTORS_MAX, ge=2, le=CONTRIBUTORS_MAX, description="of one round, validators included"
    )
    per_voucher: int = Field(
        60, ge=1, le=10_000, description="trainers that one validator vouches for"
    )
    replaced_percent: float = Field(
        20.0, ge=0, le=100, description="of trainers that leave: another comes in their place"
    )
    delta_chunks: int = Field(16, ge=1, le=4096, description="of a round's agreed aggregate")
