"""Cursors come back as they went out, and nothing else is taken for one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arachne.cursors import decode_cursor, encode_cursor
from arachne.errors import MalformedRequest


def test_a_cursor_holds_its_key() -> None:
    assert decode_cursor("jobs", encode_cursor("jobs", "job_01")) == "job_01"
    assert decode_cursor("images", encode_cursor("images", 99)) == "99"
    assert decode_cursor("jobs", None) is None


def test_a_cursor_of_another_list_is_refused() -> None:
    with pytest.raises(MalformedRequest):
        decode_cursor("jobs", encode_cursor("images", 5))


@given(st.text())
def test_garbage_is_refused(text: str) -> None:
    with pytest.raises(MalformedRequest):
        decode_cursor("jobs", text)
