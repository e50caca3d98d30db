"""Times as texts: what is read, and what is written."""

from helpers import each

from onetool.core.text import read_span, read_time, utc_text, utc_text_ms

NOON = 1_794_830_400  # 2026-11-16T12:00:00Z


@each(
    ("text", "seconds"),
    [
        ("2026-11-16T12:00:00Z", NOON),
        ("2026-11-16T12:00", NOON),
        ("2026-11-16T14:00+02:00", NOON),
        ("2026-11-16", NOON - 43_200),
        ("yesterday", None),
        ("", None),
    ],
)
def test_a_time_without_a_zone_is_utc(text, seconds):
    assert read_time(text) == seconds


@each(
    ("text", "seconds"),
    [
        ("30s", 30),
        ("5m", 300),
        ("2h", 7200),
        ("7d", 604_800),
        ("4w", 2_419_200),
        ("2", None),
        ("h", None),
        ("²h", None),
    ],
)
def test_a_span(text, seconds):
    assert read_span(text) == seconds


def test_texts_are_utc_and_in_the_order_of_their_times():
    assert utc_text(NOON + 0.9) == "2026-11-16T12:00:00Z"
    assert utc_text_ms(NOON + 0.123) == "2026-11-16T12:00:00.123Z"
    assert [utc_text(one) for one in (-1e15, 1e15)] == ["0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z"]
