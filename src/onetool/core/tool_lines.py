"""Formats tools as lines for lists, and search results within a budget.

fs.read_file(path: str, encoding: str = 'utf-8') -> str [reads]: The text of a file.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from json.encoder import encode_basestring

import msgspec

from onetool.core.signature import call_signature
from onetool.core.spec import ToolSpec
from onetool.core.text import count_tokens, cut_to_tokens, lazy_pattern
from onetool.core.type_names import return_shape

SIGNATURE_TOKENS = 60  # of a signature without the return value; the tool's help has the rest
MAX_SENTENCE = 100  # characters of the description
MAX_TOKENS = 400  # of all lines together …
MAX_LINES = 50  # … or this many, for callers that pass a limit …
MAX_BYTES = 16 * 1024 - 1_000  # … and 16 KB including the last two lines, because larger replies are stored
SEARCH_LIMIT = 5  # default number of tools in a search
NAME_TOKENS = 100  # for the names of the tools without a line

# A sentence ends before text that starts with a capital letter, or with a letter of a script without case.
_END = lazy_pattern(r"(?<=[.!?])\s+(?=[^\Wa-z_])|(?<=[。！？])")
_CUT_OFF = lazy_pattern(r"(\s\S{0,20}|.)$")  # the last word, or in languages without spaces the last character


class ToolLine(msgspec.Struct, frozen=True):
    name: str
    line: str


def tool_line(spec: ToolSpec, name: str | None = None, *, exact: bool = False, whole: bool = False) -> str:
    """Return a line about a tool: signature, return value, side effects, and the first sentence of its description.

    `name` and `exact` are passed to `signature`; with `whole`, a long sentence is not truncated.
    """
    line = cut_to_tokens(single_line(call_signature(spec, name, exact=exact)), SIGNATURE_TOKENS)
    if shape := return_shape(spec):
        line += f" -> {shape}"
    if mark := spec.effect:
        line += f" [{mark}]"
    summary = first_sentence(spec.description, whole)
    return f"{line}: {summary}" if summary else line


def first_sentence(description: str, whole: bool = False) -> str:
    text = description.strip().partition("\n\n")[0]
    sentence = _END.split(single_line(text if whole else text[: 8 * MAX_SENTENCE]), 1)[0]
    return sentence if whole or len(sentence) <= MAX_SENTENCE else f"{_CUT_OFF.sub('', sentence[:MAX_SENTENCE])}…"


def found_lines(found: Sequence[ToolLine], about: str, is_limited: bool = False) -> list[str]:
    """Return a line for each tool. The last line tells how to see details (`about`) and more tools.

    `is_limited` means that the caller passed a limit.
    """
    texts = (tool.line for tool in found[:MAX_LINES])
    room, size = (MAX_BYTES, count_bytes) if is_limited else (MAX_TOKENS, count_tokens)
    lines = list(take_within(room, texts, size, at_least=1))
    rest = [tool.name for tool in found[len(lines) :]]
    named = list(take_within(NAME_TOKENS, rest, at_least=1))
    also = [f"Also: {', '.join(named)}{f' and {len(rest) - len(named)} more' if rest[len(named) :] else ''}"]
    larger = not rest or not is_limited
    more = "More: a larger limit, or other words." if larger else "More: other words."
    return [*lines, *(also if rest else ()), f"{about}{more}"]


def single_line(text: str) -> str:
    """Collapse whitespace, so that untrusted text can't imitate output lines."""
    return " ".join(text.split())


def take_within(
    room: int, texts: Iterable[str], size: Callable[[str], int] = count_tokens, at_least: int = 0
) -> Iterator[str]:
    """Yield lines within a budget, measured in tokens or by `size`, but at least `at_least` lines."""
    for count, text in enumerate(texts):
        room -= size(text) + 1
        if room < 0 and count >= at_least:
            return
        yield text


def count_bytes(text: str) -> int:
    """Return the size of a line as a JSON string in a list, in bytes."""
    return len(encode_basestring(text).encode(errors="replace")) + 2
