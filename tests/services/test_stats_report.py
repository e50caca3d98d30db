"""The report of the stats, as text: what is in it, and what can't get into it. tests/browser looks at it, too."""

import re
from base64 import b64encode
from hashlib import sha256
from pathlib import Path

import html5lib
import pytest
from browser.summaries import HOSTILE, hostile, one_call, summary, usual

from onetool.core.errors import cut
from onetool.services.stats.formatting import duration, moment, percent, safe, short, span, tick, whole
from onetool.services.stats.report import MARK, report
from onetool.services.stats.report_charts import HEIGHT, count_axis, decade_axis

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
DATA = Path(__file__).parent.parent / "data"
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:html5lib")


def parsed(page):
    """By the rules that browsers have."""
    tree = html5lib.parse(page, namespaceHTMLElements=False)
    for one in tree.iter():
        if isinstance(one.tag, str):
            one.tag = one.tag.rpartition("}")[2]  # drawings are in a namespace of their own
    return tree


def texts(tree, path):
    return ["".join(one.itertext()) for one in tree.findall(path)]


@pytest.mark.parametrize(("name", "case"), [("filled", usual("day", 4, 3)), ("empty", summary())])
def test_a_page_is_as_it_was(name, case):
    """Without its style and script, and but for space between tags."""
    page = re.sub(r'<(style|script)>.*?</\1>|content="default-src[^"]*"', "", report(case), flags=re.DOTALL)
    expected = (DATA / "report" / f"{name}.html").read_text()
    assert re.sub(r">\s+<", "><", page) == re.sub(r">\s+<", "><", expected)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_page_is_well_formed_and_asks_nobody_for_anything(case):
    page = report(case)
    html5lib.HTMLParser(strict=True).parse(page)
    tree = parsed(page)
    tags = {one.tag for one in tree.iter() if isinstance(one.tag, str)}
    assert not tags & {"img", "iframe", "object", "embed", "a", "form", "base", "image", "foreignObject", "animate"}
    assert [one.get("href") for one in tree.iter("link")] == ["data:,"]
    for one in tree.iter():
        for name, value in one.attrib.items():
            assert not str(name).startswith("on")
            assert name not in ("style", "src", "srcset", "action", "ping")
            assert name not in ("href",) or value == "data:,"
    assert not re.search(r"url\((?!#)|@import|https?://", page.replace(safe(HOSTILE), ""))
    assert MARK in page[:1000]


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_the_policy_allows_our_own_style_and_script_and_nothing_else(case):
    tree = parsed(report(case))
    policy = next(one.get("content") for one in tree.iter("meta") if one.get("http-equiv"))
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules.pop("default-src") == rules.pop("base-uri") == rules.pop("form-action") == "'none'"
    assert rules.pop("img-src") == "data:"
    for tag, rule in (("style", "style-src"), ("script", "script-src")):
        (only,) = tree.iter(tag)
        assert rules.pop(rule) == f"'sha256-{b64encode(sha256(only.text.encode()).digest()).decode()}'"
    assert rules == {}
    head = list(tree.find("head"))
    assert [one.tag for one in head[:3]] == ["meta"] * 3  # the policy stands before anything that it is about
    assert head[2].get("http-equiv")


def test_names_from_anywhere_stay_text():
    page = report(hostile())
    assert "<img" not in page
    assert page.count("<script>") == page.count("</script>") == 1
    assert safe(HOSTILE) in page
    tree = parsed(page)
    assert HOSTILE in texts(tree, ".//h1")[0]
    assert texts(tree, ".//table[@class='numbers sortable']/tbody/tr/th") == [HOSTILE] * 3


@pytest.mark.parametrize("name", ["\x00a", "\ud800", "a\u202eb", "tab\tnew\nline", "\x1b[31m", "\ufeff"])
def test_signs_that_do_something_are_shown_as_none(name):
    one = one_call()
    one["tools"][0]["tool"] = name
    page = report(one)
    assert page.encode() == page.encode(errors="replace")
    assert name not in page
    assert "�" in page


def test_every_chart_has_a_label_and_a_table():
    tree = parsed(report(usual()))
    charts = [one for one in tree.iter("svg") if one.get("role") == "img"]
    assert [one.get("class") for one in charts] == ["plot columns", "plot lines", "plot columns"]
    assert all(one.get("aria-label") for one in charts)
    assert charts[0].get("aria-label") == ("Calls over time: 2,092 in all, 83 failed, 157 at the most in one column")
    assert texts(tree, ".//caption") == [
        "Calls over time",
        "Errors by tool and code",
        "Latency over time",
        "Tokens over time",
    ]
    named = [one.get("aria-label") for one in tree.iter("table") if one.get("class") == "bars"]
    expected = ["Calls by tool", "Errors by tool and code", "Latency in all", "Calls by door", "Calls by client"]
    expected.append("Calls by caller")
    assert named == expected
    hidden = [one for one in tree.iter("svg") if one.get("aria-hidden") != "true" and one not in charts]
    assert len(hidden) == 1  # the stretched one, inside of a chart that has a label


def test_columns_are_as_high_as_their_values():
    case = usual(buckets=30)
    tree = parsed(report(case))
    good = tree.findall(".//g[@class='ok']")[0].findall("rect")
    failed = tree.findall(".//g[@class='failed']")[0].findall("rect")
    assert len(good) == 30
    assert len(failed) == sum(one["errors"] > 0 for one in case["series"])
    for drawn, bucket in zip(good, case["series"], strict=True):
        assert float(drawn.get("height")) == pytest.approx(HEIGHT * (bucket["calls"] - bucket["errors"]) / 200, abs=0.1)
        assert float(drawn.get("y")) + float(drawn.get("height")) == pytest.approx(HEIGHT, abs=0.15)


def test_the_rest_is_folded_and_every_tool_is_in_the_table():
    tree = parsed(report(usual("week", 500, 28)))
    rows = tree.findall(".//table[@aria-label='Calls by tool']/tbody/tr")
    assert len(rows) == 13
    assert "".join(rows[-1].find("th").itertext()) == "488 others"
    assert len(tree.findall(".//table[@class='numbers sortable']/tbody/tr")) == 500


def test_one_beyond_the_top_is_not_folded():
    tree = parsed(report(usual(tools=13)))
    assert len(tree.findall(".//table[@aria-label='Calls by tool']/tbody/tr")) == 13
    assert "others" not in report(usual(tools=13))


def test_a_line_is_broken_where_nothing_was_measured():
    case = usual(buckets=5)
    case["series"][2] |= dict.fromkeys(("p50_ms", "p95_ms", "p99_ms"))
    path = parsed(report(case)).find(".//svg[@class='plot lines']//path[@class='line p50']").get("d")
    assert re.sub(r"[\d. ]+", "", path) == "MLML"


@pytest.mark.parametrize(
    ("case", "told"),
    [
        (summary(), "No calls yet"),
        (summary(period="week"), "No calls in this time"),
        (summary(tool="a.b"), "No calls of a.b yet"),
        (one_call(), "No call has failed."),
        (one_call(), "None were counted."),
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
    light, dark, printed = (
        dict(re.findall(r"--([\w-]+): (#\w+)", part)) for part in re.findall(r":root \{(.*?)\}", style, re.DOTALL)
    )
    return {"light": light, "dark": light | dark, "print": light | printed}


def contrast(one, other):
    def light(colour):
        digits = colour[1:] if len(colour) == 7 else "".join(digit * 2 for digit in colour[1:])
        parts = [int(digits[at : at + 2], 16) / 255 for at in (0, 2, 4)]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    low, high = sorted((light(one), light(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark", "print"])
def test_colours_have_contrast(scheme):
    of = colours()[scheme]
    for text in ("text", "soft", "good"):
        for ground in ("card", "page", "hover"):
            assert contrast(of[text], of[ground]) >= 4.5, (text, ground)
    assert contrast(of["tip"], of["tip-text"]) >= 4.5
    for drawn in ("ok", "failed", "in", "out"):
        assert contrast(of[drawn], of["card"]) >= 3, drawn


# Axes and words


@pytest.mark.parametrize(
    ("top", "marks"),
    [
        (0, (0, 1)),
        (1, (0, 1)),
        (3, (0, 1, 2, 3)),
        (7, (0, 2, 4, 6, 8)),
        (10, (0, 3, 6, 9, 12)),
        (157, (0, 50, 100, 150, 200)),
        (1_000_000, (0, 250_000, 500_000, 750_000, 1_000_000)),
    ],
)
def test_counts_stand_at_round_numbers(top, marks):
    axis = count_axis(top)
    assert axis.marks == marks
    assert axis.height(0) == 0
    assert axis.height(marks[-1]) == HEIGHT


@pytest.mark.parametrize(
    ("values", "marks"),
    [
        ([], (1, 10)),
        ([0.0], (1, 10)),
        ([10.0], (10, 100)),
        ([0.2, 30_000], (0.1, 1, 10, 100, 1000, 10_000, 100_000)),
    ],
)
def test_latencies_stand_between_powers_of_ten(values, marks):
    axis = decade_axis(values)
    assert axis.marks == pytest.approx(marks)
    assert axis.height(0) == 0
    assert axis.height(marks[-1] * 5) == HEIGHT


@pytest.mark.parametrize(
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


@pytest.mark.parametrize(
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
    assert (moment(None), moment("<b>")) == ("–", "&lt;b&gt;")
    assert tick("2026-11-15T06:00:00+00:00", "day") == "06:00"
    assert tick("2026-11-15T06:00:00+00:00", "week") == "15 Nov"
    assert span("2026-11-15T06:00:00+00:00", "week") == "Sun 15 Nov, 06:00"
    assert span("2026-11-15T00:00:00+00:00", "all") == "Sun 15 Nov"
