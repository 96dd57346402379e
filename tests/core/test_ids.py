"""Ids: prefixed ULIDs."""

import re
import time

import pytest

from arachne.ids import is_id, new_id

CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"


def test_an_id_is_a_ulid_of_now() -> None:
    """The first ten characters are the milliseconds since 1970 in Crockford's base 32 (ULID specification)."""
    before = time.time_ns() // 1_000_000
    text = new_id("job")
    after = time.time_ns() // 1_000_000
    assert re.fullmatch(r"job_[0-9A-HJKMNP-TV-Z]{26}", text)
    milliseconds = 0
    for character in text[4:14]:
        milliseconds = milliseconds * 32 + CROCKFORD.index(character)
    assert before <= milliseconds <= after


def test_ids_are_distinct() -> None:
    """80 random bits: no two of many are alike."""
    assert len({new_id("img") for _ in range(10_000)}) == 10_000


@pytest.mark.parametrize(
    "text",
    [
        "",
        "job_",
        "img_01J00000000000000000000000",
        "job_01j00000000000000000000000",
        "job_01J0000000000000000000000'",
        "job_8ZZZZZZZZZZZZZZZZZZZZZZZZZ",
        "../etc/passwd",
    ],
)
def test_what_is_no_id(text: str) -> None:
    """Wrong prefix, lower case, excluded letters, overflow and paths are no job ids."""
    assert not is_id(text, "job")


def test_what_is_an_id() -> None:
    """A fresh id has the form of its kind."""
    assert is_id(new_id("job"), "job")
