"""Whether others would take what a node is about to say: asked of their own decoders, beforehand.

A signature cannot be unsaid, and whoever signs what others call malformed is scored for it.
"""

from daa_consensus.bft.limits import Limits
from daa_consensus.bft.messages import (
    Block,
    decode_block,
    encode_block,
    statement_from_fields,
)
from daa_consensus.enrolment import is_of_trainers, trainer_request_from_value
from daa_consensus.errors import BadMessage
from daa_consensus.operations import OPERATION_BYTES_MAX, request_from_value
from daa_consensus.votes import Kind, Statement
from daa_dag import canonical
from daa_dag.errors import DagError


def check_statement(statement: Statement, limits: Limits) -> None:
    """Return when whoever reads the statement takes it for what it is. Raises BadMessage."""
    asks = statement.kind is Kind.MEMBERSHIP
    try:
        spoken = statement.sign_bytes()
        fields = canonical.decode(spoken, OPERATION_BYTES_MAX if asks else limits.signed_bytes_max)
    except DagError as fault:
        raise BadMessage(f"{statement.kind}: {fault}") from None
    if asks:
        of_trainers = is_of_trainers(fields[-1])
        from_value = trainer_request_from_value if of_trainers else request_from_value
        read = from_value(fields[1], fields[-1]).statement(statement.domain.chain_id)
    else:
        read = statement_from_fields(fields, limits)
    if read.sign_bytes() != spoken:
        raise BadMessage(f"{statement.kind} is read as something else")


def check_block(block: Block, limits: Limits) -> None:
    """Return when whoever reads the block takes it for what it is. Raises BadMessage."""
    try:
        encoded = encode_block(block)
    except DagError as fault:
        raise BadMessage(f"block: {fault}") from None
    if decode_block(encoded, limits).id != block.id:
        raise BadMessage("the block is read as another one")
