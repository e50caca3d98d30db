"""Halves of characters: each becomes a sign, and two that belong together the character that they are."""

import json

import msgspec
from helpers import each

from onetool.core.text import replace_all_surrogates, replace_surrogates


@each(
    ("text", "expected"),
    [
        ("plain", "plain"),
        ("Grüße, 正午 😀", "Grüße, 正午 😀"),
        ("a\ud83d b", "a\ufffd b"),
        ("\ude00x\ud83d", "\ufffdx\ufffd"),
        ("\ud83d\ud83d\ude00.", "\ufffd😀."),
        ("\ufeff\ud800", "\ufeff\ufffd"),
    ],
)
def test_texts(text, expected):
    assert replace_surrogates(text) == expected
    replace_surrogates(text).encode()


def test_data():
    value = {"k\ud800": ["\ud83d\ude00", ("\udc00", 1.5, None, True)], "raw": msgspec.Raw(b"[1]"), 3: 2**80}
    mend = replace_all_surrogates(value)
    assert mend == {"k\ufffd": ["😀", ["\ufffd", 1.5, None, True]], "raw": value["raw"], 3: 2**80}
    assert json.loads(msgspec.json.encode({**mend, 3: 0}))["raw"] == [1]


def test_keys_that_are_no_texts_stay():
    assert replace_all_surrogates({("\ud800",): 1}) == {("\ud800",): 1}
