"""The words for what happens: texts of a model, calls and what came of them, each in one line."""

import json
import re
from typing import Any

from onetool.core.call import ToolCall, ToolResult
from onetool.core.failure import cut
from onetool.core.lookalike import visible
from onetool.interfaces.cli.output import counted, printable

MOST_ARGUMENTS = 60  # characters
MOST_NAME = 80  # a model may call what there is not, by any name
MOST_ERROR = 120

# Spaces of other widths, joiners of letters and emoji, and tabs: in many languages no text is whole without them.
_HARMFUL = re.compile("[^\t\u00a0\u00ad\u2000-\u200a\u200c\u200d\u202f\u205f\u3000]+")


def readable(text: str) -> str:
    """What a model says, as a terminal may show it."""
    return _HARMFUL.sub(lambda found: printable(found[0]), text.replace("\r", ""))


def called(call: ToolCall) -> str:
    """`fs.read_file(path="a.txt")`, with arguments cut short."""
    given = ", ".join(f"{name}={_value(value)}" for name, value in call.args.items())
    return visible(f"{cut(call.name, MOST_NAME)}({cut(given, MOST_ARGUMENTS)})").replace("\n", " ")


def outcome(result: ToolResult, is_cached: bool) -> tuple[str, bool]:
    """How it went, and whether it went well."""
    if result.error is not None:
        first = result.error.message.strip().partition("\n")[0]
        return f"failed: {cut(printable(first), MOST_ERROR)}", False
    if is_cached:
        return "ok, as before", True
    from onetool.services.stats.report_words import duration  # brings pages with it that nobody sees here

    return f"ok, {duration(result.meta.get('duration_ms', 0.0))}", True


def tokens_used(input: int, output: int) -> str:
    return f"{input:,} + {counted(output, 'token')}" if input or output else ""


def _value(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)
