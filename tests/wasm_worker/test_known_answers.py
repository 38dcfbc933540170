"""The answers that the page ships with are those of this Python, bit for bit."""

from typing import Any

import pytest
from blake3 import blake3

from daa_node.spot_checks.recompute import loss_and_gradient
from tests.wasm_worker.known_answers import known_answers, piece


@pytest.mark.parametrize("answer", known_answers(), ids=lambda answer: str(answer["seed"]))
def test_a_practice_piece_has_the_gradient_that_the_page_expects(answer: dict[str, Any]) -> None:
    model, weights_D, batch = piece(answer)
    _, gradient_D = loss_and_gradient(model, weights_D, batch.inputs, batch.targets)
    assert blake3(gradient_D.tobytes()).hexdigest() == answer["digest"]


def test_the_pieces_differ() -> None:
    assert len({answer["digest"] for answer in known_answers()}) == len(known_answers())
