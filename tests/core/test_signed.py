"""What we hand out and want back: nobody else can make one, or change one."""

from base64 import urlsafe_b64decode, urlsafe_b64encode

from hypothesis import given
from hypothesis import strategies as st

from onetool.core.signed import sign, verify

KEY = bytes(32)
ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"


@given(st.binary(max_size=100))
def test_what_was_sealed_can_be_opened(data):
    assert verify(KEY, sign(KEY, data)) == data


@given(st.binary(max_size=40), st.data())
def test_every_other_character_at_every_place_is_refused(data, draw):
    text = sign(KEY, data)
    place = draw.draw(st.integers(0, len(text) - 1))
    other = draw.draw(st.sampled_from([*ALPHABET, "+", "/", "=", " ", "é", "\x00"]))
    if other != text[place]:
        assert verify(KEY, text[:place] + other + text[place + 1 :]) is None


def test_no_single_character_of_one_can_be_another():
    text = sign(KEY, b"0123456789abcdef" + bytes(4))
    for place, char in enumerate(text):
        for other in ALPHABET:
            assert other == char or verify(KEY, text[:place] + other + text[place + 1 :]) is None


@given(st.binary(min_size=1, max_size=40), st.integers(0, 200))
def test_no_single_bit_can_be_another(data, place):
    raw = bytearray(urlsafe_b64decode(pad(sign(KEY, data))))
    place %= 8 * len(raw)
    raw[place // 8] ^= 1 << place % 8
    assert verify(KEY, urlsafe_b64encode(raw).decode().rstrip("=")) is None


def pad(text):
    return text + "=" * (-len(text) % 4)


@given(st.text(max_size=80))
def test_what_was_never_sealed_is_refused(text):
    assert verify(KEY, text) is None


@given(st.binary(max_size=40))
def test_it_is_spelled_in_one_way_and_whole(data):
    text = sign(KEY, data)
    others = [f"{text}=", f"{text}\n", f" {text}", text[:-1], text[1:], text + text, f"{text}A", text.swapcase()]
    others += [text.replace("-", "+"), text.replace("_", "/")]
    assert [verify(KEY, other) for other in others if other != text and pad(other) != text] == [None] * len(
        [other for other in others if other != text and pad(other) != text]
    )


@given(st.binary(max_size=40))
def test_another_key_does_not_open_it(data):
    assert verify(b"another", sign(KEY, data)) is None
