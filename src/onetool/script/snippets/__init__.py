"""Snippets: templates of code from the config, used as `$name key=value`. See `call` for what can be written.

The body is a template (`{{ topic }}`, `{% for … %}`, `{% if … %}`, filters), and what it puts out is code. A value
never becomes code: in quotes or a comment it is text, escaped for them; elsewhere it is a Python literal, so
`{{ topic }}` alone stands for 'tea', quotes included. None is nothing in a text, and None elsewhere.
"""

import json
import re
from collections.abc import Mapping
from typing import Any, NoReturn, Protocol

from msgspec import UNSET

from onetool.core.errors import OneToolError
from onetool.core.nearest import nearest
from onetool.script.snippets.call import NAME, WrongValueError, arguments, shown, typed, unknown
from onetool.script.snippets.literals import UnsayableError, put
from onetool.script.snippets.spots import UnclosedError
from onetool.script.snippets.templates import BodyError, fill

HEAD = re.compile(rf"\s*\$({NAME})")
LISTED = 10
LONGEST_DEFAULT = 40
BARE = re.compile(r"[^\s'\"=:\[{][^\s'\"=]*")


class ParamLike(Protocol):
    """A parameter; without a default (UNSET) it must be given."""

    @property
    def kind(self) -> str: ...
    @property
    def default(self) -> Any: ...
    @property
    def description(self) -> str: ...


class SnippetLike(Protocol):
    """What the config calls a snippet."""

    @property
    def description(self) -> str: ...
    @property
    def params(self) -> Mapping[str, ParamLike]: ...
    @property
    def body(self) -> str: ...


class SnippetError(OneToolError):
    """A snippet that can't be used as it was called, or as it was written. The message says how to repair that."""


def expand(text: str, snippets: Mapping[str, SnippetLike]) -> str:
    """The code that the call of a snippet stands for."""
    head = HEAD.match(text)
    if not head:
        raise SnippetError("a snippet is called as $name key=value")
    name = head[1]
    snippet = snippets.get(name)
    if snippet is None:
        raise SnippetError(_no_such(name, snippets))
    rest = text[head.end() :]
    if rest and not rest[0].isspace():
        _refuse(name, snippet, [f"{shown(rest.splitlines()[0])} can't stand right behind the name"])
    values, wrong = arguments(rest, {key: param.kind for key, param in snippet.params.items()})
    return _rendered(name, snippet, values, wrong)


def render(snippet: SnippetLike, values: Mapping[str, Any], name: str = "snippet") -> str:
    """The code of a snippet with these values. A text is read where another type is wanted: prompts send only texts."""
    return _rendered(name, snippet, values, {})


def _rendered(name: str, snippet: SnippetLike, values: Mapping[str, Any], wrong: Mapping[str, str]) -> str:
    known = snippet.params
    given = {key: param.default for key, param in known.items() if param.default is not UNSET}
    problems = [f"{key} {words}".lstrip() for key, words in wrong.items()]
    for key in values:
        if key in wrong:
            continue
        if key not in known:
            problems.append(unknown(key, known))
            continue
        try:
            given[key] = typed(values[key], known[key].kind)
        except WrongValueError as error:
            problems.append(f"{key} {error}")
    missing = [key for key in known if key not in values and key not in given]
    if missing:
        problems.append(f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing")
    if problems:
        _refuse(name, snippet, problems)
    return _filled(name, snippet.body, given)


def parameters(snippet: SnippetLike) -> list[dict[str, Any]]:
    """The parameters as data: name, type, description, required, and the default where there is one."""
    return [
        {"name": name, "type": param.kind, "description": param.description, "required": param.default is UNSET}
        | ({} if param.default is UNSET else {"default": param.default})
        for name, param in snippet.params.items()
    ]


def usage(name: str, snippet: SnippetLike) -> str:
    """How it is called: `$research topic=… [count=5]`."""
    needed = [f"{key}=…" for key, param in snippet.params.items() if param.default is UNSET]
    others = [f"[{key}={_written(param)}]" for key, param in snippet.params.items() if param.default is not UNSET]
    return " ".join([f"${name}", *needed, *others])


def _written(param: ParamLike) -> str:
    """A default as somebody would type it."""
    if isinstance(param.default, str) and BARE.fullmatch(param.default):
        text = param.default
    else:
        text = json.dumps(param.default, ensure_ascii=False, default=str)
    return text if len(text) <= LONGEST_DEFAULT else "…"


def _filled(name: str, body: str, values: Mapping[str, Any]) -> str:
    try:
        return put(*fill(body, values))
    except (BodyError, UnclosedError) as error:
        raise SnippetError(f"the body of ${name} can't be used: {error}") from None
    except UnsayableError as error:
        same = [key for key, value in values.items() if type(value) is type(error.value) and value == error.value]
        what = same[0] if same else shown(error.value)
        raise SnippetError(f"the body of ${name} has no place for {what}: {error}") from None


def _refuse(name: str, snippet: SnippetLike, problems: list[str]) -> NoReturn:
    raise SnippetError(f"${name}: {'; '.join(problems)} (usage: {usage(name, snippet)})")


def _no_such(name: str, snippets: Mapping[str, SnippetLike]) -> str:
    if not snippets:
        return f"there is no snippet ${name}: the config has none"
    near = nearest(name, snippets)
    if near:
        return f"there is no snippet ${name}, did you mean {' or '.join(f'${one}' for one in near)}?"
    listed = ", ".join(f"${one}" for one in list(snippets)[:LISTED])
    return f"there is no snippet ${name}; there are {listed}{' …' if len(snippets) > LISTED else ''}"
