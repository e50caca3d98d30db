"""The report of the stats, as text: what is in it, and what can't get into it. tests/browser looks at it, too."""

import re
from base64 import b64encode
from hashlib import sha256

import html5lib
import pytest
from browser.summaries import HOSTILE, hostile, one_call, summary, usual
from helpers import each

from onetool.core.errors import cut
from onetool.services.journal.formatting import duration, moment, percent, short, span, tick, whole
from onetool.services.journal.report import MARK, report

CASES = {
    "usual": usual(),
    "a day": usual("day", 6, 24),
    "a week, 500 tools": usual("week", 500, 28),
    "90 days": usual("all", 40, 90),
    "one tool, one bucket, all zero": one_call(),
    "one that failed": usual("day", 1, 1),
    "nothing": summary(),
    "buckets without a call": summary(period="month", series=[{**one_call()["series"][0], "calls": 0}]),
    "calls, and nothing else": summary(total_calls=3, success_rate=100.0),
    "hostile": hostile(),
}
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:html5lib")


def parsed(page):
    """By the rules that browsers have."""
    tree = html5lib.parse(page, namespaceHTMLElements=False)
    for one in tree.iter():
        if isinstance(one.tag, str):
            one.tag = one.tag.rpartition("}")[2]  # drawings are in a namespace of their own
    return tree


def texts(tree, path):
    return ["".join(one.itertext()).strip() for one in tree.findall(path)]


@each("case", CASES.values())
def test_a_page_is_well_formed_and_asks_nobody_for_anything(case):
    page = report(case)
    html5lib.HTMLParser(strict=True).parse(page)
    tree = parsed(page)
    tags = {one.tag for one in tree.iter() if isinstance(one.tag, str)}
    assert not tags & {
        "script",
        "img",
        "iframe",
        "object",
        "embed",
        "a",
        "form",
        "base",
        "image",
        "foreignObject",
        "animate",
    }
    assert [one.get("href") for one in tree.iter("link")] == ["data:,"]
    for one in tree.iter():
        for name, value in one.attrib.items():
            assert not str(name).startswith("on")
            assert name not in ("style", "src", "srcset", "action", "ping")
            assert name not in ("href",) or value == "data:,"
    assert not re.search(r"url\((?!#)|@import|https?://", page)
    assert MARK in page[:1000]


@each("case", CASES.values())
def test_the_policy_allows_our_own_style_and_nothing_else(case):
    tree = parsed(report(case))
    policy = next(one.get("content") for one in tree.iter("meta") if one.get("http-equiv"))
    (style,) = tree.iter("style")
    digest = b64encode(sha256(style.text.encode()).digest()).decode()
    allowed = f"style-src 'sha256-{digest}'; img-src data:"  # the empty icon, which browsers ask for otherwise
    assert policy == f"default-src 'none'; {allowed}; base-uri 'none'; form-action 'none'"
    head = list(tree.find("head"))
    assert [one.tag for one in head[:3]] == ["meta"] * 3  # the policy stands before anything that it is about
    assert head[2].get("http-equiv")


def test_names_from_anywhere_stay_text():
    page = report(hostile())
    assert "<img" not in page
    assert "<script" not in page
    tree = parsed(page)
    assert texts(tree, ".//title")[0] == texts(tree, ".//h1")[0] == f"OneTool stats: {HOSTILE}"
    assert texts(tree, ".//table[@class='tools']/tbody/tr/th") == [HOSTILE] * 3
    assert texts(tree, ".//table[@class='tools']/tbody/tr/td[@class='text']") == [HOSTILE] * 3
    assert HOSTILE in texts(tree, ".//header/p")[0]
    assert HOSTILE in texts(parsed(report({**hostile(), "total_calls": 0})), ".//main//h2")[0]


@each("name", ["\x00a", "\ud800", "a\u202eb", "tab\tnew\nline", "\x1b[31m", "\ufeff"])
def test_signs_that_do_something_are_shown_as_none(name):
    one = one_call()
    one["tools"][0]["tool"] = name
    page = report(one)
    assert page.encode() == page.encode(errors="replace")
    assert name not in page
    assert "�" in page


def test_every_chart_has_a_label_and_a_table():
    tree = parsed(report(usual()))
    charts = [one.get("aria-label") for one in tree.iter("svg") if one.get("role") == "img"]
    assert charts == ["Calls over time", "Latency over time", "Tokens over time"]
    assert [one.get("aria-label") for one in tree.findall(".//details/div")] == charts
    columns = tree.findall(".//svg/svg")  # parts of a chart, which has a label
    others = [one for one in tree.iter("svg") if one.get("role") != "img" and one not in columns]
    assert all(one.get("aria-hidden") == "true" for one in others)


@each(
    ("calls", "marks"),
    [
        (1, ["2", "1", "0"]),
        (3, ["4", "2", "0"]),
        (10, ["20", "10", "0"]),
        (157, ["200", "100", "0"]),
        (999, ["1,000", "500", "0"]),
        (1_000_000, ["2,000,000", "1,000,000", "0"]),
    ],
)
def test_columns_are_as_high_as_their_values(calls, marks):
    case = one_call(total_calls=calls)
    case["series"][0] |= {"calls": calls, "errors": calls // 3}
    plot = parsed(report(case)).find(".//svg[@class='plot']")
    assert texts(plot, "./text[@class='mark']") == marks
    top = int(marks[0].replace(",", ""))
    for level, value in (("level1", calls), ("level2", calls // 3)):
        column = plot.find(f"./svg/rect[@class='{level}']")
        assert float(column.get("height").rstrip("%")) == pytest.approx(100 * value / top, abs=0.01)
        assert float(column.get("y").rstrip("%")) == pytest.approx(100 - 100 * value / top, abs=0.01)


def test_every_tool_is_in_the_table():
    tree = parsed(report(usual("week", 500, 28)))
    assert len(tree.findall(".//table[@class='tools']/tbody/tr")) == 500


@pytest.mark.parametrize(
    ("case", "told"),
    [
        (summary(), "No calls yet"),
        (summary(period="week"), "No calls in this time"),
        (summary(tool="a.b"), "No calls of a.b yet"),
        (one_call(), "No call has failed."),
    ],
)
def test_where_there_is_nothing_it_says_so(case, told):
    assert told in report(case)


def test_pages_are_small():
    assert len(report(usual()).encode()) < 60_000
    assert len(report(usual("all", 40, 90)).encode()) < 100_000
    assert len(report(usual("week", 500, 28)).encode()) < 200_000


# Colours


def colours():
    style = parsed(report(summary())).find(".//style").text
    light, dark = (
        dict(re.findall(r"--(\w+): (#\w+)", part)) for part in re.findall(r":root \{(.*?)\}", style, re.DOTALL)
    )
    return {"light": light, "dark": dark}


def contrast(one, other):
    def light(colour):
        digits = colour[1:] if len(colour) == 7 else "".join(digit * 2 for digit in colour[1:])
        parts = [int(digits[at : at + 2], 16) / 255 for at in (0, 2, 4)]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    low, high = sorted((light(one), light(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_colours_have_contrast(scheme):
    of = colours()[scheme]
    for text in ("text", "soft", "good"):
        for ground in ("card", "page", "hover"):
            assert contrast(of[text], of[ground]) >= 4.5, (text, ground)
    for drawn in ("level1", "level2", "failed"):
        assert contrast(of[drawn], of["card"]) >= 3, drawn


# Words


@each(
    ("ms", "words"),
    [
        (None, "–"),
        (0, "0 ms"),
        (0.213, "0.21 ms"),
        (99.97, "100 ms"),
        (340.4, "340 ms"),
        (999.7, "1 s"),
        (1234, "1.2 s"),
        (59_960, "1 min"),
        (250_000, "4 min 10 s"),
        (12_000_000, "3 h 20 min"),
        (187_200_000, "2 d 4 h"),
        (-1500, "−1.5 s"),
    ],
)
def test_durations_in_words(ms, words):
    assert duration(ms) == words


@each(
    ("number", "words"),
    [
        (0, "0"),
        (999, "999"),
        (1000, "1k"),
        (1234, "1.2k"),
        (9960, "10k"),
        (1_284_300, "1.3M"),
        (-2500, "−2.5k"),
        (4e12, "4T"),
    ],
)
def test_numbers_in_short(number, words):
    assert short(number) == words


def test_other_words():
    assert whole(-1234567) == "−1,234,567"
    assert (percent(None), percent(96.0), percent(99.9)) == ("–", "96%", "99.9%")
    assert cut("abcdef", 4) == "abc…"
    assert moment("2026-11-15T10:02:00+00:00") == "15 Nov 2026, 10:02"
    assert moment("2026-11-15T10:02:00+02:00") == "15 Nov 2026, 08:02"
    assert moment(None) == "–"
    assert tick("2026-11-15T06:00:00+00:00", "day") == "06:00"
    assert tick("2026-11-15T06:00:00+00:00", "week") == "15 Nov"
    assert span("2026-11-15T06:00:00+00:00", "week") == "Sun 15 Nov, 06:00"
    assert span("2026-11-15T00:00:00+00:00", "all") == "Sun 15 Nov"
