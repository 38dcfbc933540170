"""Who comes to a gateway's page: how many, from how many addresses, and what they are like."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

VolunteerKind = Literal[
    "honest",
    "liar",  # answers wrong, each one otherwise
    "colluder",  # answers wrong, and all of them alike
    "seer",  # lies as a colluder does, where it thinks to know that nobody looks afterwards
    "leaver",  # goes with its third task, without a word, and comes back
    "sleeper",  # takes tasks and answers none
    "garbler",  # says what is no message
    "oversizer",  # says more than a frame may hold
    "replayer",  # says each verdict twice
    "flooder",  # says far more than anybody may in a second
    "masker",  # has another name each time
]
PER_ADDRESS_MAX = 200  # what a simulated host has room for


class VolunteersConfig(BaseModel):
    """Some volunteers that are alike, in sessions that last until the run is over."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    kind: VolunteerKind = Field("honest", description="what they are like")
    count: int = Field(1, ge=1, le=4096, description="how many there are")
    per_address: int = Field(1, ge=1, le=PER_ADDRESS_MAX, description="of these at one address")
    node: int = Field(0, ge=0, description="whose gateway they come to; it is open for their sake")
    at_s: float = Field(1.0, ge=0, le=1e6, description="from when on they come")
    task_s: float = Field(0.5, ge=0, le=1e3, description="what a task takes them, on the average")

    @property
    def addresses(self) -> int:
        return -(-self.count // self.per_address)
