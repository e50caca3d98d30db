"""Writes the tools that a search found, a line each, the best first, within a budget of tokens.

fs.read_file(path: str, encoding: str = 'utf-8') -> str: The text of a file
"""

from collections.abc import Iterator, Sequence

import msgspec

from onetool.core.text import count_tokens, cut_to_tokens

SIGNATURE_TOKENS, GIST_TOKENS = 60, 20  # of one line: more is known from the tool's help
MAX_TOKENS = 400  # of all lines
NAME_TOKENS = 100  # of the names of those that had no room for a line


class FoundTool(msgspec.Struct, frozen=True):
    name: str
    signature: str
    description: str


def found_lines(found: Sequence[FoundTool], about: str) -> list[str]:
    """Return a line for each tool. The last line says how to see more of each (`about`), and more tools."""
    lines = list(_within(MAX_TOKENS, (_line(tool) for tool in found)))
    rest = [tool.name for tool in found[len(lines) :]]
    named = list(_within(NAME_TOKENS, iter(rest)))
    also = [f"Also: {', '.join(named)}{f' and {len(rest) - len(named)} more' if rest[len(named) :] else ''}"]
    more = "More: other words." if rest else "More: a larger limit, or other words."
    return [*lines, *(also if rest else ()), f"{about}{more}"]


def _line(tool: FoundTool) -> str:
    said = _on_a_line(tool.description.strip().partition("\n\n")[0])
    line = cut_to_tokens(_on_a_line(tool.signature), SIGNATURE_TOKENS)
    return f"{line}: {cut_to_tokens(said[: 8 * GIST_TOKENS], GIST_TOKENS)}" if said else line


def _on_a_line(text: str) -> str:
    """Join the lines of a stranger's text, which must not look like another line of ours."""
    return " ".join(text.split())


def _within(tokens: int, texts: Iterator[str]) -> Iterator[str]:
    """Yield as many texts as so many tokens hold, and one in any case."""
    for count, text in enumerate(texts):
        tokens -= count_tokens(text) + 1
        if tokens < 0 and count:
            return
        yield text
