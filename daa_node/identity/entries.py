"""Who takes part, as a genesis lists it: keys in hex."""

from typing import Self

from pydantic import BaseModel, ConfigDict, Field

from daa_consensus.committee import STAKE_MAX
from daa_dag.ids import NodeId
from daa_node.identity.record import NodeRecord
from daa_node.identity.validators import MemberKeys
from daa_node.seams import PeerId


class TrainerEntry(BaseModel):
    """One trainer: its keys."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    node_id: str = Field(pattern="^[0-9a-f]{64}$")
    ml_dsa_public_key: str = Field(pattern="^[0-9a-f]{3904}$")
    ml_kem_public_key: str = Field(pattern="^[0-9a-f]{2368}$")
    peer_id: str = Field(min_length=1, max_length=64)

    @classmethod
    def of(cls, record: NodeRecord, **more: int) -> Self:
        """As the record proves that its keys belong together."""
        return cls.model_validate(
            {
                "node_id": record.node_id.hex(),
                "ml_dsa_public_key": record.ml_dsa_public_key.hex(),
                "ml_kem_public_key": record.ml_kem_public_key.hex(),
                "peer_id": record.peer_id,
                **more,
            }
        )

    @property
    def name(self) -> NodeId:
        return NodeId(bytes.fromhex(self.node_id))

    @property
    def keys(self) -> bytes:
        """As an Enroll has them; the genesis stands for their proof."""
        dsa_key, kem_key = self.ml_dsa_public_key, self.ml_kem_public_key
        peer_id = PeerId(self.peer_id)
        return MemberKeys(bytes.fromhex(dsa_key), bytes.fromhex(kem_key), peer_id, b"").encode()


class ValidatorEntry(TrainerEntry):
    """One validator: its keys, and what its vote weighs."""

    stake: int = Field(1, ge=1, le=STAKE_MAX)
