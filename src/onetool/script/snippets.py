"""Snippets: code templates from the config that are called as `$name key=value`.

    $research topic=tea count=3
    $research topic="green \\"tea\\"" tags=["a", "b"]
    $research
    topic: green tea, and what people say about it: everything
    count=3

Pairs are separated by white space, on one or more lines. A bare value ends at the end of its line or before the next
`key=`; `key: value` takes the rest of its line unchanged. Values in single or triple quotes have Python's escapes.
Arrays and objects are JSON.
"""

import json
import math
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from typing import Any, NoReturn, Protocol, TypeVar

from msgspec import UNSET

from onetool.core.errors import OneToolError, cut
from onetool.core.json_data import no_constant
from onetool.core.signature import as_identifier
from onetool.core.text import MAX_UNKNOWN, did_you_mean, nearest
from onetool.script.names import BUILTINS, ScriptNames, may_be_named
from onetool.script.parse import names_used_in
from onetool.script.render import literal_block_mark, yaml_quoted, yaml_text
from onetool.script.render import render as render_value
from onetool.script.rewrite import MODULES
from onetool.script.snippet_templates import BodyError, fill_template

NAME = r"[^\W\d][\w-]*"
PAIR = re.compile(rf"({NAME})[ \t]*(?:(=)(?!=)[ \t]*|:(?:[ \t]+|(?=\s|\Z)))")
NEXT = re.compile(rf"(?<=[ \t]){NAME}[ \t]*=(?!=)")
QUOTED = re.compile(r"(?P<quote>\"\"\"|'''|\"|')(?P<text>(?:[^\\]|\\.)*?)(?P=quote)", re.DOTALL)
SPACE = re.compile(r"\s*")
ALONE = re.compile(r"(?!\S)")
LAST = re.compile(r"[ \t\r]*(?:\n|\Z)")
ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|.)", re.DOTALL)
ESCAPES = dict(zip("ntr0abfv", "\n\t\r\0\a\b\f\v", strict=True)) | {"\n": "", "\\": "\\", "'": "'", '"': '"'}
EXPECTED = {
    "string": "text",
    "integer": "a whole number such as 3",
    "number": "a number such as 0.5",
    "boolean": "true or false",
    "array": 'JSON such as ["a", "b"]',
    "object": 'JSON such as {"a": 1}',
}
MAX_DEPTH = 32
SHOWN = 40
UNREAD = "the rest was not read"


class WrongValueError(ValueError):
    """An invalid value. The message continues a sentence that begins with its name."""


def parse_arguments(text: str, types: Mapping[str, str]) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the values by key, and the errors by key, or by "" without one.

    Stops after ten errors.
    """
    values: dict[str, Any] = {}
    wrong: dict[str, str] = {}
    at = mistakes = 0
    while (at := past_space(text, at)) < len(text):
        if mistakes >= MAX_UNKNOWN:
            wrong[""] = UNREAD
            break
        pair = PAIR.match(text, at)
        if not pair:
            hint = " (text of several lines goes in three quotes)" if "\n" in text.strip() else ""
            wrong[""] = f"{value_shown(text[at : _line_end(text, at)])} is not key=value{hint}"
            break
        key, at = pair[1], pair.end()
        mistakes += key in values or key not in types
        if key in values:
            wrong[key] = "is given twice"
        try:
            values[key], at = _value(text, at, types.get(key, "string"), bool(pair[2]))
        except WrongValueError as error:
            values[key], at, wrong[key] = None, _line_end(text, at), str(error)
            mistakes += 1
    return values, wrong


def as_parameter_type(value: Any, type: str) -> Any:
    """Return the value as its parameter's type. Strings are parsed, other values are checked."""
    if isinstance(value, str) and type != "string":
        value = _parse(value, type)
    if isinstance(value, float) and value.is_integer() and type == "integer":
        value = int(value)
    if not _has_type(value, type):
        raise WrongValueError(f"must be {EXPECTED[type]}, not {value_shown(value)}")
    _check_value(value)
    return value


def value_shown(value: Any) -> str:
    """Return a value for a message: on one line, and shortened."""
    text = repr(value[: SHOWN + 1] if isinstance(value, str) else value)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"


def _value(text: str, at: int, type: str, several: bool) -> tuple[Any, int]:
    """Return the value that begins at `at`, and its end. `several` means that more pairs may follow on the line."""
    end = _line_end(text, at)
    quoted = QUOTED.match(text, at)
    if quoted and len(quoted["quote"]) == 1 and quoted.end() > end:
        quoted = None
    if quoted and (ALONE if several else LAST).match(text, quoted.end()):
        return _unescaped(quoted["text"]), quoted.end()
    if type in ("array", "object") and text.startswith(("[", "{"), at):
        with suppress(ValueError, RecursionError):
            value, value_end = json.JSONDecoder(parse_constant=no_constant).raw_decode(text, at)
            if ALONE.match(text, value_end):
                return value, value_end
        raise WrongValueError(f"must be {EXPECTED[type]}, not {value_shown(text[at:end])}")
    if several and text.startswith(("'", '"'), at):
        raise WrongValueError("has text right after its closing quote" if quoted else "has a quote that is not closed")
    if several and (following := NEXT.search(text, at, end)):
        end = following.start()
    return text[at:end].strip(), end


def _unescaped(text: str) -> str:
    def char(escape: re.Match[str]) -> str:
        if len(escape[1]) == 1:
            return ESCAPES.get(escape[1], escape[0])  # unknown escapes are kept
        number = int(escape[1][1:], 16)
        return chr(number) if number <= 0x10FFFF else escape[0]

    if "\\" not in text:
        return text
    # JSON escapes 🦊 as two surrogates
    return ESCAPE.sub(char, text).encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")


def _parse(text: str, type: str) -> Any:
    """Return a string parsed as this type, or the string itself if that fails."""
    try:
        if type == "boolean":
            return {"true": True, "false": False}[text.lower()]
        if type == "number" or type == "integer":
            return float(text) if any(char in text for char in ".eE") else int(text)
        return json.loads(text, parse_constant=no_constant)
    except (ValueError, KeyError, RecursionError):
        return text


def _has_type(value: Any, type: str) -> bool:
    if isinstance(value, bool) or type == "boolean":
        return isinstance(value, bool) and type == "boolean"
    if isinstance(value, float) and not math.isfinite(value):
        return False
    kinds = {"string": str, "integer": int, "number": int | float, "array": list | tuple, "object": Mapping}
    return isinstance(value, kinds[type])


def _check_value(value: Any, depth: int = 0) -> None:
    """Raise WrongValueError for values that can't be written as a literal."""
    if depth > MAX_DEPTH:
        raise WrongValueError(f"is nested deeper than {MAX_DEPTH} levels")
    if isinstance(value, str):
        if not value.isascii() and any("\ud800" <= char <= "\udfff" for char in value):
            raise WrongValueError("contains a lone surrogate, which is not a character")
    elif isinstance(value, Mapping):
        for key, part in value.items():
            _check_value(key, depth + 1)
            _check_value(part, depth + 1)
    elif isinstance(value, list | tuple):
        for part in value:
            _check_value(part, depth + 1)
    elif value is not None and not isinstance(value, int | float):
        raise WrongValueError("must be plain data")


def past_space(text: str, at: int) -> int:
    found = SPACE.match(text, at)
    return found.end() if found else at


def _line_end(text: str, at: int) -> int:
    end = text.find("\n", at)
    return len(text) if end < 0 else end


# Snippets: code templates from the config, used as `$name key=value`.

HEAD = re.compile(rf"\s*\$({NAME})")
LISTED = 10
MAX_DEFAULT = 40
BARE = re.compile(r"[^\s'\"=:\[{][^\s'\"=]*")


class ParamLike(Protocol):
    """A parameter; required if its default is UNSET."""

    @property
    def kind(self) -> str: ...
    @property
    def default(self) -> Any: ...
    @property
    def description(self) -> str: ...


class SnippetLike(Protocol):
    """A snippet in the config."""

    @property
    def description(self) -> str: ...
    @property
    def params(self) -> Mapping[str, ParamLike]: ...
    @property
    def body(self) -> str: ...


class SnippetError(OneToolError):
    """A snippet that is invalid, or was called incorrectly. The message says how to fix that."""


AnySnippet = TypeVar("AnySnippet", bound=SnippetLike)
_DOTTED = re.compile(r"[\w-]+(?:\.[\w-]+)+")
_WORD = re.compile(r"\w+")


def visible_snippets(
    snippets: Mapping[str, AnySnippet], names: ScriptNames, allowed: Collection[str] | None
) -> Mapping[str, AnySnippet]:
    """Return the snippets that use only tools of the allow-list. Its callers see only these."""
    if allowed is None:
        return snippets
    packs = {as_identifier(name.partition(".")[0]) for name in allowed}
    words = {*names.words(allowed), *packs}
    return {name: snippet for name, snippet in snippets.items() if _uses_only(snippet, names, allowed, words)}


def _uses_only(snippet: SnippetLike, names: ScriptNames, allowed: Collection[str], words: Collection[str]) -> bool:
    """Return whether a snippet uses only allowed tools. `words` are the names that code of this caller can
    begin with.
    """
    text = "\n".join((snippet.body, *(_json_text(param.default) for param in snippet.params.values())))
    for dotted in _DOTTED.findall(text):
        pack, own = dotted.split(".")[:2]
        for spec in (names.tool(f"{pack}.{own}"), names.catalogue.get(dotted)):
            if spec is not None and not may_be_named(spec, allowed):
                return False
    used = None
    with suppress(SnippetError):
        used = names_used_in(render_snippet(snippet, _stand_ins(snippet)))
    if any(word in names and word not in words for word in (_WORD.findall(text) if used is None else used.names)):
        return False
    # An unknown pack may be that of a server that has not connected yet.
    return used is None or used.packs.issubset(BUILTINS.union(MODULES, words))


def expand(text: str, snippets: Mapping[str, SnippetLike]) -> str:
    """Return the code that a snippet call expands to."""
    head = HEAD.match(text)
    if not head:
        raise SnippetError("a snippet is called as $name key=value")
    name = head[1]
    snippet = snippets.get(name)
    if snippet is None:
        name = cut(name, SHOWN)
        if not snippets:
            raise SnippetError(f"there is no snippet ${name}: the config has none")
        if near := nearest(name, snippets):
            names = " or ".join(f"${similar}" for similar in near)
            raise SnippetError(f"there is no snippet ${name}, did you mean {names}?")
        listed = ", ".join(f"${known}" for known in list(snippets)[:LISTED])
        more = " …" if len(snippets) > LISTED else ""
        raise SnippetError(f"there is no snippet ${name}; known: {listed}{more}")
    rest = text[head.end() :]
    if rest and not rest[0].isspace():
        _refuse(name, snippet, [f"{value_shown(rest.splitlines()[0])} can't follow the name"])
    values, wrong = parse_arguments(rest, {key: param.kind for key, param in snippet.params.items()})
    return render_snippet(snippet, values, name, wrong)


def render_snippet(
    snippet: SnippetLike, values: Mapping[str, Any], name: str = "snippet", wrong: Mapping[str, str] | None = None
) -> str:
    """Return the code of a snippet with these values.

    Strings are converted if another type is needed, because prompts send only strings. `wrong` are parse errors by key.
    """
    known, wrong = snippet.params, wrong or {}
    args = {key: param.default for key, param in known.items() if param.default is not UNSET}
    problems = [f"{cut(key, SHOWN)} {text}".lstrip() for key, text in wrong.items() if text != UNREAD]
    unknown = [key for key in values if key not in known and key not in wrong]
    for key in unknown[:MAX_UNKNOWN]:
        near = did_you_mean(key, known)
        problems.append(f"there is no parameter {value_shown(key)}" + (f", {near}" if near else ""))
    if len(unknown) > MAX_UNKNOWN:
        problems.append(f"nor {len(unknown) - MAX_UNKNOWN:,} others")
    for key in known:
        if key not in values or key in wrong:
            continue
        try:
            args[key] = as_parameter_type(values[key], known[key].kind)
        except WrongValueError as error:
            problems.append(f"{key} {error}")
    missing = [key for key in known if key not in values and key not in args]
    if wrong.get("") == UNREAD:
        problems.append(UNREAD)
    elif missing:
        problems.append(f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing")
    if problems:
        _refuse(name, snippet, problems)
    try:
        return fill_template(snippet.body, args)
    except BodyError as error:
        raise SnippetError(f"the body of ${name} can't be used: {error}") from None


def parameters(snippet: SnippetLike) -> list[dict[str, Any]]:
    """Return the parameters as data: name, type, description, required, and the default, if any."""
    return [
        {"name": name, "type": param.kind, "description": param.description, "required": param.default is UNSET}
        | ({} if param.default is UNSET else {"default": param.default})
        for name, param in snippet.params.items()
    ]


def usage(name: str, snippet: SnippetLike) -> str:
    """Return the usage: `$research topic=… [count=5]`."""
    required = [f"{key}=…" for key, param in snippet.params.items() if param.default is UNSET]
    optional: list[str] = []
    for key, param in snippet.params.items():
        if (default := param.default) is not UNSET:  # as a user would type it
            text = default if isinstance(default, str) and BARE.fullmatch(default) else _json_text(default)
            optional.append(f"[{key}={text if len(text) <= MAX_DEFAULT else '…'}]")
    return " ".join([f"${name}", *required, *optional])


def _refuse(name: str, snippet: SnippetLike, problems: list[str]) -> NoReturn:
    raise SnippetError(f"${name}: {'; '.join(problems)} (usage: {usage(name, snippet)})")


# Showing a snippet

# Example values for required parameters.
STAND_INS = {"string": "Python", "integer": 1, "number": 0.5, "boolean": True, "array": ["a"], "object": {"a": 1}}


def snippet_definition(name: str, snippet: SnippetLike) -> str:
    return "\n".join([*_definition_lines(name, snippet), "", *_example_lines(name, snippet)]) + "\n"


def _definition_lines(name: str, snippet: SnippetLike) -> Iterator[str]:
    yield f"name: {yaml_text(name)}"
    yield f"description: {yaml_text(snippet.description)}"
    yield "params:" if snippet.params else "params: {}"
    for key, param in snippet.params.items():
        facts: dict[str, Any] = {"type": param.kind}
        if param.default is not UNSET:
            facts["default"] = param.default
        if param.description:
            facts["description"] = param.description
        yield from _parameter_lines(yaml_text(key), facts)
    body = snippet.body.rstrip("\n") + "\n"
    mark = literal_block_mark(body)
    if mark is None:
        yield f"body: {yaml_quoted(snippet.body)}"
        return
    yield f"body: {mark}"
    yield from (f"  {line}" if line else "" for line in body.splitlines())


def _parameter_lines(name: str, facts: dict[str, Any]) -> Iterator[str]:
    """Yield a parameter on one line with quoted strings, or on several lines if it is too deep or too long."""
    default = facts.get("default")
    parts = default.values() if isinstance(default, dict) else default if isinstance(default, list) else ()
    values = {
        key: yaml_quoted(value) if isinstance(value, str) and key != "type" else render_value(value)
        for key, value in facts.items()
    }
    if any(isinstance(part, list | dict) for part in parts) or "\n" in "".join(values.values()):
        yield f"  {name}:"
        yield from (f"    {line}" for line in render_value(facts).splitlines())
    else:
        yield f"  {name}: {{{', '.join(f'{key}: {text}' for key, text in values.items())}}}"


def _example_lines(name: str, snippet: SnippetLike) -> Iterator[str]:
    args = _stand_ins(snippet)
    pairs = (f"{key}={value if isinstance(value, str) else _json_text(value)}" for key, value in args.items())
    yield "# Example with defaults:"
    yield f"# {' '.join([f'${name}', *pairs])}"
    try:
        code = render_snippet(snippet, args, name)
    except SnippetError as error:
        yield f"# It can't be used like this: {error}"
        return
    yield "# Expands to:"
    yield code.rstrip("\n")


def _stand_ins(snippet: SnippetLike) -> dict[str, Any]:
    return {key: STAND_INS[param.kind] for key, param in snippet.params.items() if param.default is UNSET}


def _json_text(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)
