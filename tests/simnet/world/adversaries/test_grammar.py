"""The puppet's grammar: it knows every kind of message that decoders know, and forges nothing."""

import ast
import inspect
import random
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from daa_consensus.bft.limits import Limits
from daa_consensus.bft.messages import (
    Block,
    GenesisPayload,
    OfferBody,
    SetPayload,
    block_from_value,
    decode_signed,
    encode_signed,
    genesis_block,
)
from daa_consensus.committee import Domain
from daa_consensus.errors import BadMessage
from daa_consensus.operations import Join, Operation, decode_operation, encode_operation
from daa_consensus.votes import Kind
from daa_dag.errors import DagError
from daa_dag.ids import BlockId, ChainId, ValidatorSetRoot
from daa_node.agreement import messages
from daa_node.agreement.messages import (
    Asked,
    Message,
    Position,
    Proposed,
    Stated,
    decode_message,
    encode_message,
)
from daa_node.errors import PeerFault
from daa_node.identity import envelope
from daa_node.identity.keys import NodeKeys
from daa_node.identity.validators import MemberKeys
from daa_node.network import hello
from simnet.nodes.virtual.cheap_signatures import cheap_signer_of
from simnet.world.adversaries.behaviour import Pen, Voice
from simnet.world.adversaries.grammar import Composer
from simnet.world.adversaries.heard import Heard
from simnet.world.adversaries.pens import Pens
from simnet.world.adversaries.shapes import (
    ABOUT,
    ACTIONS,
    BODIES,
    ENCODED,
    HEIGHTLESS,
    PAYLOADS,
    SLOTLESS,
    fields_of,
    tuple_of,
)
from simnet.world.adversaries.temper import WORDS
from simnet.world.adversaries.variations import Variations
from simnet.world.determinism import Streams

LIMITS = Limits(6, 6)
DOMAIN = Domain(ChainId(bytes([1]) * 32), 3, ValidatorSetRoot(bytes([2]) * 32))
TRIES = 300
AT = Position(3, 9, 7, 5, 0)


def composer(seed: int) -> Composer:
    own = NodeKeys.from_seed(Streams(seed).bytes("own"), cheap_signer_of)

    def pen(number: int) -> Pen:
        keys = own
        if number:
            keys = NodeKeys.from_seed(own.node_id + number.to_bytes(8), cheap_signer_of)
        return Pen(keys.node_id, MemberKeys.of(keys), partial(envelope.sign, keys=keys))

    chance = random.Random(seed)
    sign = partial(envelope.sign, keys=own)
    voice = Voice(4, DOMAIN, view=9, height=5, sign=sign, chance=chance, pen=pen)
    return Composer(Heard(), Pens(voice), LIMITS)


def first(make: Callable[[], Any]) -> Any:
    """The first of many tries that a decoder takes."""
    for _ in range(TRIES):
        try:
            return make()
        except (PeerFault, BadMessage, DagError):
            continue
    raise AssertionError(f"no decoder takes any of {TRIES}")


@pytest.mark.parametrize("body", BODIES)
def test_every_kind_of_message_is_made_and_read(body: type) -> None:
    maker = composer(1)

    def make() -> Message:
        message = Message(AT, maker.made(body))
        assert decode_message(encode_message(message), LIMITS) == message
        return message

    assert isinstance(first(make).body, body)


def test_a_message_that_the_decoder_knows_is_one_of_the_grammar() -> None:
    tree = ast.parse(inspect.getsource(messages._body_of))
    words = {
        pattern.patterns[0].value.value
        for pattern in ast.walk(tree)
        if isinstance(pattern, ast.MatchSequence)
        and pattern.patterns
        and isinstance(pattern.patterns[0], ast.MatchValue)
        and isinstance(pattern.patterns[0].value, ast.Constant)
    }
    maker = composer(2)
    said = {messages._body_value(maker.made(body))[0] for body in BODIES for _ in range(3)}
    assert words == said


@pytest.mark.parametrize("kind", Kind)
def test_every_kind_of_word_is_made_and_read(kind: Kind) -> None:
    maker = composer(3)
    assert kind in ABOUT
    word = maker.word(kind)
    if kind not in WORDS:  # travels as an operation, or by a request
        return
    assert decode_signed(encode_signed(first(lambda: word)), LIMITS) == word
    assert (word.statement.view == 0) == (kind in SLOTLESS)
    assert word.statement.height == 0 or kind not in HEIGHTLESS


@pytest.mark.parametrize("action", ACTIONS)
def test_every_request_is_made_signed_by_whom_it_binds_and_read(action: type) -> None:
    maker = composer(4)
    operation = maker.operation(action)
    assert decode_operation(encode_operation(operation)) == operation
    assert maker.pens.owns(operation.request)


@pytest.mark.parametrize("payload", PAYLOADS)
def test_every_payload_of_a_block_is_made_and_read(payload: type) -> None:
    maker = composer(5)

    def make() -> Block:
        made = maker.made(payload)
        block = Block(DOMAIN.chain_id, 3, 9, 5, BlockId(bytes([3]) * 32), 8, made)
        if isinstance(made, GenesisPayload):
            block = genesis_block(DOMAIN.chain_id, made.vertex_id)
        return block_from_value(_listed(block.as_value()), LIMITS)

    assert isinstance(first(make).payload, payload)


def _listed(value: Any) -> Any:
    return [_listed(each) for each in value] if isinstance(value, list | tuple) else value


def test_what_lies_inside_of_bytes_is_made_too() -> None:
    maker = composer(6)
    made = [maker.made(SetPayload) for _ in range(40)]
    for place in ("evidence", "operations"):
        encoding = ENCODED[SetPayload, place]
        assert any(encoding.opened(item) for payload in made for item in getattr(payload, place))


def test_a_variation_is_another_word_under_the_same_key() -> None:
    maker = composer(7)
    variations = Variations(maker, random.Random(7))
    for kind in Kind:
        for _ in range(20):
            word = maker.word(kind)
            other = variations.varied(word)
            assert other.signer == word.signer
            assert other.statement.kind is kind
            assert other.statement.sign_bytes() != word.statement.sign_bytes()


def test_what_others_signed_is_never_changed_under_their_name() -> None:
    maker, stranger = composer(8), composer(9)
    variations = Variations(maker, random.Random(8))
    said = [stranger.word(kind) for kind in Kind]
    asked = [stranger.operation(action) for action in ACTIONS]
    for word in said:
        for _ in range(10):
            assert variations.varied(word).signer in maker.pens.held
    for operation in asked:
        for _ in range(10):
            assert maker.pens.owns(variations.varied(operation).request)


def test_a_clone_shares_one_leaf_and_nothing_else_but_its_kind() -> None:
    maker = composer(10)
    variations = Variations(maker, random.Random(10))
    like = maker.operation(Join)
    clones = [copy for _ in range(40) for copy in variations.clones(like, 2)]
    peers = {_peer_of(copy) for copy in clones}
    assert _peer_of(like) in peers
    assert len(peers) > 2
    assert all(c.request.action.subject != like.request.action.subject for c in clones)


def _peer_of(operation: Operation) -> str:
    action = operation.request.action
    assert isinstance(action, Join)
    keys = ENCODED[Join, "keys"].opened(action.keys)
    assert isinstance(keys, MemberKeys)
    return keys.peer_id


def test_lists_grow_to_their_limit_and_shrink_to_nothing() -> None:
    maker = composer(11)
    payload = first(lambda: maker.made(SetPayload))
    sizes = set()
    for ways in (("fill",), ("drop",), ("thin",)):
        focus = frozenset({(SetPayload, "operations")})
        variations = Variations(maker, random.Random(11), focus, ways)
        for _ in range(10):
            sizes.add(len(variations.varied(payload).operations))
    assert max(sizes) == LIMITS.operations_max
    assert min(sizes) <= len(payload.operations)


def test_what_is_heard_is_used_again() -> None:
    maker = composer(12)
    message, operation = Message(AT, Stated(maker.word(Kind.OFFER))), maker.operation(Join)
    for each in (message, Message(AT, Asked(operation)), message):
        maker.heard.message(each, is_others=True)
    assert len(maker.heard.of("Signed")) == len(maker.heard.of("OfferBody")) == 1
    assert maker.heard.of("request_id") == [operation.request.id]
    offer = maker.heard.of("OfferBody")[0]
    assert any(maker.made(OfferBody).blob_root == offer.blob_root for _ in range(20))
    assert operation.request.action.subject in maker.heard.echoed


def test_a_message_and_a_hello_of_one_name_are_not_taken_for_each_other() -> None:
    maker = composer(14)
    maker.heard.message(Message(AT, messages.Greeting()), is_others=True)
    assert {type(maker.made(hello.Greeting)) for _ in range(50)} == {hello.Greeting}


def test_a_proposal_that_was_changed_is_signed_for_the_block_that_it_brings() -> None:
    maker = composer(13)
    variations = Variations(maker, random.Random(13))
    proposal = first(lambda: maker.made(Proposed))
    for _ in range(20):
        other = variations.varied(proposal)
        if other.signed.signer in maker.pens.held:
            assert other.signed.statement.value == other.block.id


def test_no_field_of_the_wire_is_beyond_the_grammar() -> None:
    """A type hint that it cannot read would show here first."""
    maker = composer(14)
    for of in (*BODIES, *PAYLOADS, *ACTIONS):
        for place, hint in fields_of(of):
            for _ in range(5):
                value = maker._field(of, place, hint)
                assert tuple_of(hint) is None or isinstance(value, tuple)
