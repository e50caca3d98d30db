"""Renders a summary of the stats as one HTML page without scripts: `report.html.jinja`, filled with data.

Names of tools, errors and clients are untrusted: the template escapes every value, and a content security policy
allows the page's own style by its hash and nothing else.
"""

import math
from base64 import b64encode
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onetool.services.journal.formatting import PERIOD_TITLES, duration, moment, percent, short, span, tick, whole

if TYPE_CHECKING:
    from onetool.services.journal.summary import Bucket, Summary

# Marks a file as a report, which the next report may overwrite.
MARK = '<meta name="generator" content="onetool stats">'
_MAX_TICKS = 6  # labels below a chart; more would overlap on a phone


def report(summary: "Summary") -> str:
    """Return the page as HTML, to be encoded as UTF-8."""
    from minijinja import Environment  # takes 25 ms; only reports need it

    template = Path(__file__).with_name("report.html.jinja").read_text(encoding="utf-8")
    style = template.split("<style>")[1].split("</style>")[0]
    environment = Environment(
        auto_escape_callback=lambda name: True,
        finalizer=_printable,
        filters={"duration": duration, "moment": moment, "percent": percent, "short": short, "whole": whole},
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.render_str(
        template,
        mark=MARK,
        style_hash=b64encode(sha256(style.encode()).digest()).decode(),
        summary=summary,
        period=PERIOD_TITLES.get(summary["period"], summary["period"]),
        failed=sum(tool["errors"] for tool in summary["tools"]),
        max_calls=max((tool["calls"] for tool in summary["tools"]), default=1),
        charts=_charts(summary),
    )


def _printable(value: Any) -> Any:
    """Replace unprintable characters, such as those that reverse the direction of text."""
    if type(value) is not str:  # numbers, and markup made by the template
        return NotImplemented
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in value)


def _charts(summary: "Summary") -> list[dict[str, Any]]:
    def chart(title: str, heads: tuple[str, str], text: Callable[[float], str], values: Callable[["Bucket"], tuple]):
        """Describe a chart: a column for each bucket, with two values. The first includes the second."""
        pairs = [values(bucket) for bucket in series]
        highest = max(value for value, _ in pairs)
        size = 10 ** math.floor(math.log10(highest or 1))
        # A round number whose half is also round.
        top = next(size * digit for digit in (2, 4, 6, 8, 10) if size * digit >= highest)
        columns = [
            {
                "span": span(bucket["start"], summary["period"]),
                "tick": "" if index % every else tick(bucket["start"], summary["period"]),
                "texts": [text(value) for value in pair],
                "heights": [100 * value / top for value in pair],
            }
            for index, (bucket, pair) in enumerate(zip(series, pairs, strict=True))
        ]
        return {"title": title, "heads": heads, "marks": (text(top), text(top / 2), text(0)), "columns": columns}

    series = summary["series"]
    every = math.ceil(len(series) / _MAX_TICKS)
    if not series:
        return []
    return [
        chart("Calls over time", ("calls", "failed"), whole, lambda one: (one["calls"], one["errors"])),
        chart("Latency over time", ("p95", "median"), duration, lambda one: (one["p95_ms"] or 0, one["p50_ms"] or 0)),
        chart(
            "Tokens over time",
            ("all", "to tools"),
            short,
            lambda one: (one["tokens_in"] + one["tokens_out"], one["tokens_in"]),
        ),
    ]
