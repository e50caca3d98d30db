"""How a model does a task of two calls with each contender: what it is shown, what it asks first, and how it calls."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from onetool.core.signature import as_identifier

Task = Mapping[str, Any]
"""`task` is what the user wants; each of its `calls` has the `words` to look for, the `tool` and its `args`."""


Packs = Mapping[str, Sequence[str]]
"""Packs, and the names of their tools."""


class Request(NamedTuple):
    """What a model writes to call a tool of the menu."""

    name: str
    arguments: dict[str, Any]


class Way(NamedTuple):
    """One contender: its server's command is made of `server` and `menu`."""

    title: str
    server: str
    menu: str
    look: Callable[[Task], list[Request]]
    call: Callable[[Task], list[Request]]
    spelled: Callable[[str], str] = str
    """A tool's name, as it stands in an answer."""
    lookup: Callable[[Packs], list[Request]] | None = None
    """How it looks up all tools of some packs."""


# Looking for the two tools


def _nothing(_: Task) -> list[Request]:
    return []


def _in_one_run(task: Task) -> list[Request]:
    return [Request("run", {"code": f"[ot.search(words) for words in {[one['words'] for one in task['calls']]!r}]"})]


def _searches(name: str) -> Callable[[Task], list[Request]]:
    return lambda task: [Request(name, {"query": one["words"]}) for one in task["calls"]]


def _searches_and_schemas(task: Task) -> list[Request]:
    """Its search tells names and descriptions; arguments are told by the other."""
    names = [one["tool"] for one in task["calls"]]
    return [*_searches("search")(task), Request("get_schema", {"tools": names})]


# Looking up whole packs


def _help_on_packs(packs: Packs) -> list[Request]:
    return [Request("run", {"code": f"ot.help({[_identifiers(pack) for pack in packs]!r})"})]


def _searches_in_packs(packs: Packs) -> list[Request]:
    return [Request("search", {"query": pack, "pack": pack, "limit": 20}) for pack in packs]


def _searches_for_packs(name: str) -> Callable[[Packs], list[Request]]:
    return lambda packs: [Request(name, {"query": pack}) for pack in packs]


def _searches_for_packs_and_schemas(packs: Packs) -> list[Request]:
    names = [name for of_pack in packs.values() for name in of_pack]
    return [*_searches_for_packs("search")(packs), Request("get_schema", {"tools": names})]


# The two calls


def _code_of_ours(task: Task) -> list[Request]:
    calls = [f"{_identifiers(one['tool'])}({_keywords(one['args'])})" for one in task["calls"]]
    return [Request("run", {"code": f"[{', '.join(calls)}]"})]


def _keywords(args: Mapping[str, Any]) -> str:
    return ", ".join(f"{key}={value!r}" for key, value in args.items())


def _identifiers(name: str) -> str:
    return ".".join(map(as_identifier, name.split(".")))


def _code_of_fastmcp(task: Task) -> list[Request]:
    calls = [f'await call_tool("{one["tool"]}", {one["args"]!r})' for one in task["calls"]]
    return [Request("execute", {"code": f"return [{', '.join(calls)}]"})]


def _one_by_one(name: str, args: str) -> Callable[[Task], list[Request]]:
    return lambda task: [Request(name, {"name": one["tool"], args: one["args"]}) for one in task["calls"]]


def _each_by_its_name(spelled: Callable[[str], str]) -> Callable[[Task], list[Request]]:
    return lambda task: [Request(spelled(one["tool"]), dict(one["args"])) for one in task["calls"]]


def _double(name: str) -> str:
    return name.replace(".", "__").replace(" ", "_")


WAYS: Sequence[Way] = (
    Way("OneTool, menu run", "onetool", "run", _in_one_run, _code_of_ours, _identifiers, _help_on_packs),
    Way(
        "OneTool, menu search",
        "onetool",
        "search",
        _searches("search"),
        _one_by_one("call", "args"),
        lookup=_searches_in_packs,
    ),
    Way("OneTool, menu direct", "onetool", "direct", _nothing, _each_by_its_name(_double)),
    Way("FastMCP, every tool", "fastmcp", "direct", _nothing, _each_by_its_name(str)),
    Way(
        "FastMCP, search",
        "fastmcp",
        "search",
        _searches("search_tools"),
        _one_by_one("call_tool", "arguments"),
        lookup=_searches_for_packs("search_tools"),
    ),
    Way(
        "FastMCP, code mode",
        "fastmcp",
        "code",
        _searches_and_schemas,
        _code_of_fastmcp,
        lookup=_searches_for_packs_and_schemas,
    ),
)
