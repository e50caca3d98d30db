"""The stats as one page: charts, tables and tiles in a file of its own, which asks nobody for anything.

Names of tools, codes of errors and names of clients come from anywhere. Every text goes through `safe`; the page's
own style and script are constants, named by their hashes in a policy that forbids everything else.
"""

from base64 import b64encode
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from onetool.services.stats.report_sections import empty, sections
from onetool.services.stats.report_words import PERIODS, moment, safe

if TYPE_CHECKING:
    from onetool.services.stats.shapes import Summary

# Every report has it among its first bytes: what has it may be written over by the next one.
MARK = '<meta name="generator" content="onetool stats">'
# Patterns, so that what failed and what came out are told apart without colours, too.
_PATTERNS = (
    '<svg class="patterns" aria-hidden="true" width="0" height="0"><defs>'
    '<pattern id="failed" width="5" height="5" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
    '<rect class="ground" width="5" height="5"/><rect class="stripe" width="1.6" height="5"/></pattern>'
    '<pattern id="out" width="5" height="5" patternUnits="userSpaceOnUse">'
    '<rect class="ground" width="5" height="5"/><circle class="stripe" cx="2.5" cy="2.5" r="1.1"/></pattern>'
    "</defs></svg>"
)


def report(summary: "Summary") -> str:
    """The whole page, as text to write into a file (UTF-8)."""
    style, script = _part("report.css"), _part("report.js")
    title = "OneTool stats" if summary["tool"] is None else f"OneTool stats: {safe(summary['tool'])}"
    body = sections(summary) if summary["total_calls"] else empty(summary)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f"{MARK}\n"
        f'<meta http-equiv="Content-Security-Policy" content="{_policy(style, script)}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n<meta name="referrer" content="no-referrer">\n'
        f'<link rel="icon" href="data:,">\n<title>{title}</title>\n<style>{style}</style>\n</head>\n<body>\n'
        f"{_PATTERNS}\n<header><h1>{title}</h1><p>{_about(summary)}</p></header>\n<main>\n{body}</main>\n{_FOOTER}\n"
        f'<div id="tip" role="status" hidden></div>\n<script>{script}</script>\n</body>\n</html>\n'
    )


_FOOTER = (
    "<footer><p>Times are in UTC. Tokens are estimated: a quarter of the bytes. What was saved is estimated from"
    " what was measured; the docs of OneTool say how.</p></footer>"
)


def _about(summary: "Summary") -> str:
    since = f"{moment(summary['since'])} to " if summary["since"] else "until "
    return f"{PERIODS.get(summary['period'], safe(summary['period']))}: {since}{moment(summary['until'])} UTC"


@cache
def _part(name: str) -> str:
    return f"\n{Path(__file__).with_name(name).read_text(encoding='utf-8')}"


def _policy(style: str, script: str) -> str:
    """Nothing may be loaded, sent or run but the two parts of the page that have these hashes."""
    return (
        f"default-src 'none'; style-src {_hashed(style)}; script-src {_hashed(script)}; img-src data:;"
        " base-uri 'none'; form-action 'none'"
    )


def _hashed(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"
