"""Call lines: `+tool key=value …`, one call on one line, in `run` and in `onetool chat`.

    +fs.read_file path="my notes.txt"
    +read-file path=notes.txt maxBytes=100
    +brave.search query='green tea' tags=["a", "b"]

Tools are called by their name in code, their full name, an alias, or just their slug if no other tool has the same
slug. Quotes and backslashes work as in a shell. A value is JSON if the tool's schema requires data, otherwise text.
In `run` a line needs at least one `key=value`: `+x` alone is Python, and `+x y=1` never is.
"""

import json
import re
import shlex
from collections.abc import Collection
from contextlib import suppress
from typing import Any, NamedTuple
from unicodedata import normalize

from onetool.core.errors import cut
from onetool.core.json_data import strict_decoder
from onetool.core.signature import as_identifier, is_text, parameter_named, takes_others
from onetool.core.spec import ToolSpec
from onetool.core.text import MAX_UNKNOWN, or_rather
from onetool.script.names import ScriptNames
from onetool.script.parse import ScriptError
from onetool.script.snippets import ALONE, SHOWN, past_space, value_shown

MARK = "+"
SLUG = r"\w[^\s=()\[\]{},;\"'+*/<>]*"
KEY = r"[^\W\d][\w.:$@-]*|[$@][\w.:$@-]+"
LINE = re.compile(rf"\+({SLUG})(?:[ \t]+(.*))?", re.DOTALL)
PAIR = re.compile(rf"({KEY})=")
# One shell word: quoted parts, escaped characters, and everything else up to the next space.
WORD = re.compile(r"""(?:[^\s'"\\]++|'[^']*+'|"(?:[^"\\]|\\.)*+"|\\.)*+""", re.DOTALL)
MAX_NAMED = 5  # tools with the same slug that an error lists


class CallLine(NamedTuple):
    """A tool, and its arguments in the line."""

    spec: ToolSpec
    args: dict[str, Any]


def expand_call_line(
    code: str, names: ScriptNames, allowed: Collection[str] | None = None, taken: Collection[str] = ()
) -> str:
    """Return the Python call for code that consists of one call line; other code is returned unchanged."""
    line = code.strip()
    match = None if "\n" in line else LINE.fullmatch(line)
    if match is None or not PAIR.match(match[2] or ""):
        return code
    spec, args = read_call_line(line, names, allowed)
    word = ""
    with suppress(StopIteration):  # unlisted tools, such as an older version, have no spelling
        word = names.spelling(spec)
    are_valid = all(parameter_named(spec, as_identifier(key)) == key for key in args)
    if are_valid and word and names.tool(word) is spec and word.partition(".")[0] not in taken:
        return f"{word}({', '.join(f'{as_identifier(key)}={value!r}' for key, value in args.items())})"
    return f"ot.call({spec.name!r}, {args!r})"  # the name is not an identifier, or has another meaning


def read_call_line(line: str, names: ScriptNames, allowed: Collection[str] | None = None) -> CallLine:
    """Parse a call line, which may have no arguments. Raise ScriptError if it is invalid."""
    match = LINE.fullmatch(line.strip())
    if match is None:
        raise ScriptError("a tool is called as +tool key=value")
    spec, text = find_tool(match[1], names, allowed), match[2] or ""
    args: dict[str, Any] = {}
    limit = None if takes_others(spec) else len(spec.order) + MAX_UNKNOWN
    at = past_space(text, 0)
    while at < len(text):
        pair = PAIR.match(text, at)
        if pair is None:
            raise ScriptError(f"+{spec.name}: {value_shown(text[at:].split()[0])} is not key=value{_order(spec)}")
        if len(args) == limit:
            raise ScriptError(f"+{spec.name}: more than {limit} arguments are given{_order(spec)}")
        if pair[1] in args:
            raise ScriptError(f"+{spec.name}: {cut(pair[1], SHOWN)} is given twice")
        args[pair[1]], at = _value(text, pair.end(), pair[1], spec)
        at = past_space(text, at)
    return CallLine(spec, args)


def find_tool(slug: str, names: ScriptNames, allowed: Collection[str] | None = None) -> ToolSpec:
    """Return the tool with this name, alias or slug, which may end with `@version`.

    The ScriptError suggests similar names.
    """
    slug = normalize("NFC", slug)
    spec = names.tool(slug) or names.catalogue.get(slug) or names.tool(slug.replace("-", "_"))
    if spec is not None:
        return spec
    head, at, version = slug.partition("@")
    if at:
        newest = find_tool(head, names, None if allowed is None else {name.partition("@")[0] for name in allowed})
        if (spec := names.catalogue.get(f"{newest.name}@{version}")) is None:
            raise ScriptError(f"there is no version {value_shown(version)} of {newest.name}")
        return spec
    same = [tool for tool in names.with_slug(slug) if allowed is None or tool.name in allowed]
    if len(same) > 1:
        listed = ", ".join(tool.name for tool in same[:MAX_NAMED])
        more = " …" if len(same) > MAX_NAMED else ""
        raise ScriptError(f"several tools have the slug {slug}: name one of {listed}{more}")
    if not same:  # similar names are also found by their last part, so slugs are not needed
        shown = (spec.name for spec in names.catalogue if not spec.hidden and (allowed is None or spec.name in allowed))
        raise ScriptError(f"there is no tool {value_shown(slug)}{or_rather(slug, [*names.functions, *shown])}")
    return same[0]


# Arguments


def _order(spec: ToolSpec) -> str:
    return f"; it takes {', '.join(spec.order)}" if spec.order else "; it takes no arguments"


def _value(text: str, at: int, key: str, spec: ToolSpec) -> tuple[Any, int]:
    """Return the value that begins at `at`, and its end."""
    wants_text = is_text(key, spec)
    if not wants_text and text.startswith(("[", "{"), at):
        with suppress(ValueError, RecursionError):
            end = json.JSONDecoder().raw_decode(text, at)[1]
            data = strict_decoder().decode(text[at:end])
            if ALONE.match(text, end):
                return data, end
    word = WORD.match(text, at)
    if word is None or not ALONE.match(text, word.end()):
        raise ScriptError(f"+{spec.name}: {cut(key, SHOWN)} has a quote that is not closed")
    unquoted = "".join(shlex.split(word[0]))
    if wants_text:
        return unquoted, word.end()
    try:
        return strict_decoder().decode(unquoted), word.end()
    except (ValueError, RecursionError):
        return unquoted, word.end()  # values of other types are reported by the validation
