"""The book of invites is read as it was written, and what contradicts itself is not."""

import pytest

from daa_dag.errors import NotCanonical
from daa_dag.ids import NodeId
from daa_node.agreement.invite_book import (
    InviteBook,
    Issued,
    decode_book,
    digest_of_token,
    encode_book,
)


def test_who_never_came_is_not_coming() -> None:
    lost = Issued(digest_of_token(b"t" * 16), 2, 5, (), (NodeId(b"n" * 32),))
    with pytest.raises(NotCanonical):
        decode_book(encode_book(InviteBook((lost,))))


def test_a_book_is_read_as_it_was_written() -> None:
    one = Issued(digest_of_token(b"t"), 2, 99, (NodeId(b"n" * 32),), (), True)
    book = InviteBook((one,))
    assert decode_book(encode_book(book)) == book
