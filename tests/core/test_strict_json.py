"""JSON has one reading here, and nonsense is a ValueError, whatever it is."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arachne import strict_json


@pytest.mark.parametrize(
    "data",
    [
        b"", b" ", b"{", b"[" * 100_000, b'{"a":' * 100_000, b"NaN", b"-Infinity", b"1e999", b"9" * 5000,
        b'{"a":1,"a":2}', b'"\xff"', b"\xff\xfe1\x00", b"{'a':1}", b"[1,]", b"01", b'"\x00"', b"nul", b"1 2",
    ],
)  # fmt: skip
def test_what_has_no_one_reading_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        strict_json.parse(data)


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**30), 10**30)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(json_values)
def test_every_json_value_comes_back(value: object) -> None:
    assert strict_json.parse(json.dumps(value)) == value
