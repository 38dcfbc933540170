"""Names for vertices: what one may be, whose it is, and what a damaged file costs."""

import json

import pytest

from daa_dag.ids import ChainId, VertexId
from daa_node.checkpoints.tags import CHAINS_MAX, NAME_CHARACTERS_MAX, TAGS_MAX, Tags, parse_tags
from daa_node.errors import UserError

CHAIN, OTHER = ChainId(b"c" * 32), ChainId(b"o" * 32)
ONE, TWO = VertexId(b"1" * 32), VertexId(b"2" * 32)


def none() -> Tags:
    return parse_tags("tags.json", "{}", CHAIN)


def test_a_tag_stands_for_its_vertex_and_other_words_for_themselves() -> None:
    tags = none()
    tags.put("best", ONE, move=False)
    tags.put("also", ONE, move=False)
    assert tags.spelled_out("best") == ONE.hex()
    assert tags.spelled_out("tip") == "tip"
    assert tags.of_vertices() == {ONE: ["also", "best"]}
    again = parse_tags("tags.json", tags.as_text(), CHAIN)
    assert again.names() == {"also": ONE, "best": ONE}


def test_a_name_that_is_taken_moves_only_when_asked_to() -> None:
    tags = none()
    tags.put("best", ONE, move=False)
    tags.put("best", ONE, move=False)
    with pytest.raises(UserError, match="is given already, to vertex 3131313131313131"):
        tags.put("best", TWO, move=False)
    tags.put("best", TWO, move=True)
    assert tags.names() == {"best": TWO}
    tags.remove("best")
    with pytest.raises(UserError, match="there is no tag best"):
        tags.remove("best")


def test_tags_of_another_network_are_kept_and_not_shown() -> None:
    tags = none()
    tags.put("best", ONE, move=False)
    elsewhere = parse_tags("tags.json", tags.as_text(), OTHER)
    assert elsewhere.names() == {}
    elsewhere.put("best", TWO, move=False)
    back = parse_tags("tags.json", elsewhere.as_text(), CHAIN)
    assert back.names() == {"best": ONE}


@pytest.mark.parametrize(
    "name",
    ["", "7", "7up", "-n", "a b", "a/b", "a\n", "\u00e4", "x" * (NAME_CHARACTERS_MAX + 1)],
)
def test_a_name_is_one_word(name: str) -> None:
    with pytest.raises(UserError, match="is no name for a tag"):
        none().put(name, ONE, move=False)


@pytest.mark.parametrize("name", ["tip", "deadbeef", "CAFEBABE01"])
def test_a_name_means_no_vertex_already(name: str) -> None:
    with pytest.raises(UserError, match="means a vertex already"):
        none().put(name, ONE, move=False)


def test_tags_are_bounded() -> None:
    tags = none()
    for number in range(TAGS_MAX):
        tags.put(f"t{number}", ONE, move=False)
    with pytest.raises(UserError, match="the most there may be"):
        tags.put("another", ONE, move=False)
    tags.put("t0", TWO, move=True)


def test_a_file_of_too_many_is_refused() -> None:
    own = {f"t{number}": ONE.hex() for number in range(TAGS_MAX + 1)}
    chains: dict[str, object] = {f"{number:064x}": {} for number in range(CHAINS_MAX + 1)}
    for text in (json.dumps({CHAIN.hex(): own}), json.dumps(chains)):
        with pytest.raises(UserError, match="remove some"):
            parse_tags("tags.json", text, CHAIN)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{",
        '{"best": {}}',
        f'{{"{CHAIN.hex()}": {{"best": "12"}}}}',
        f'{{"{CHAIN.hex()}": {{"tip": "{ONE.hex()}"}}}}',
    ],
)
def test_a_damaged_file_is_named(text: str) -> None:
    with pytest.raises(UserError):
        parse_tags("tags.json", text, CHAIN)
