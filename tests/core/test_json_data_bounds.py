"""What JSON may cost is known from its bytes, and only what counts is counted."""

import json

import pytest
from helpers import each
from hypothesis import given
from hypothesis import strategies as st

from onetool.core import json_data
from onetool.core.json_data import CHUNK, MAX_DIGITS, MAX_PARTS, JsonTooCostlyError, check_json

SIZE = 4 * 1024 * 1024
PARTS = f"has more than {MAX_PARTS:,} parts"
DIGITS = f"has a number of more than {MAX_DIGITS:,} digits"


@pytest.mark.long
@pytest.mark.parametrize("part", [b"[]", b"{}", b"0", b'""', b"[[[]]]", b'{"":[]}', b'{"a":0}', b'"a,b"', b"[ ]"])
def test_too_many_parts(part):
    with pytest.raises(JsonTooCostlyError, match=PARTS):
        check_json(b"[" + b",".join([part] * (MAX_PARTS + 1)) + b"]")


@each("number", [b"9" * 4000, b"-" + b"9" * 1001, b"0." + b"9" * 1001, b"1e" + b"0" * 1001])
@each("before", [0, 1, 499, 500, 999, CHUNK - 500])
def test_too_many_digits(number, before):
    with pytest.raises(JsonTooCostlyError, match=DIGITS):
        check_json(b'["' + b"x" * before + b'",' + number + b"]")


@each(
    "data",
    [
        b'["' + b"," * SIZE + b'"]',
        b'["' + b"[{," * SIZE + b'"]',
        b'["' + b"7" * SIZE + b'"]',
        b'["' + b'\\",' * (SIZE // 3) + b'"]',
        b'["' + b"\\\\" * (SIZE // 2) + b'",1,"' + b"," * SIZE + b'"]',
        b"[" + b",".join([b"[]"] * MAX_PARTS) + b"]",
        b"[" + b",".join([b"9" * MAX_DIGITS] * 1000) + b"]",
    ],
)
def test_what_is_large_and_harmless(data):
    check_json(data)


@given(st.lists(st.text('",[{1\\x') | st.integers() | st.just([]), max_size=30), st.integers(1, 20))
def test_only_what_stands_outside_of_texts_counts(values, chunk):
    """However it is cut."""
    data = json.dumps(values, ensure_ascii=False).encode()
    whole, json_data.CHUNK = json_data.CHUNK, chunk
    try:
        bare = b"".join(json_data._without_texts(data))
    finally:
        json_data.CHUNK = whole
    assert bare.count(b",") == max(0, len(values) - 1)
    assert bare.count(b"[") == 1 + values.count([])
    numbers = "".join(str(value) for value in values if isinstance(value, int))
    assert bytes(filter(b"0123456789".__contains__, bare)).decode() == numbers.replace("-", "")
