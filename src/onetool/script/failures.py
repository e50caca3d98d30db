"""Converts the error that ended a run into a ToolError with its cause, the line of code, and how to fix it."""

import ast
import re
import sys
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from msgspec.structs import replace

from onetool.core.call import ToolError
from onetool.core.errors import cut
from onetool.core.text import did_you_mean
from onetool.sandbox import (
    CodeError,
    CodeSyntaxError,
    NeverAwaitedError,
    OutOfMemoryError,
    ProtocolError,
    TooManyDigitsError,
    WorkerError,
    WorkerStartError,
)
from onetool.script.missing_keys import missing_key_hint
from onetool.script.names import MISSING_BUILTINS, ScriptNames, may_be_named, rename_advice
from onetool.script.parse import parse
from onetool.script.rewrite import MODULES
from onetool.script.run_result import LimitError, RunLimits, too_much_memory, too_slow

# The sandbox's messages about its limits.
OUT_OF_TIME = re.compile(r"feed time limit exceeded: [\d.]+\w+ > [\d.]+\w+")
OUT_OF_MEMORY = re.compile(r"memory limit exceeded: \d+ bytes > \d+ bytes")
MAX_MESSAGE = 260  # of the sandbox, the code and OneTool itself; tools' own messages are whole
MAX_LINE = 80
MAX_READ = 10_000  # characters of a message to read: code can raise one of many megabytes
MAX_TEXT = 470  # characters of such a message and its hints, to keep an error below 120 tokens


class RunScene(NamedTuple):
    """The context for describing an error: the code, its names, its limits, and the failed calls."""

    code: str
    feed: str  # the name of the code in the sandbox's tracebacks
    names: ScriptNames
    limits: RunLimits
    failures: Mapping[str, ToolError]  # of tools, by message
    allowed: Collection[str] | None = None  # the tools that hints may name
    returned: Mapping[str, Any] = {}  # the last values of tools, by name


def failure(error: BaseException, scene: RunScene) -> ToolError:
    """Return the ToolError for the exception that ended a run."""
    tool_error = _tool_error(error, scene)
    left = MAX_TEXT - min(len(tool_error.message), MAX_MESSAGE)
    hints: list[str] = []
    for hint in tool_error.hints:
        if left > 0:
            hints.append(cut(hint, left))
            left -= len(hints[-1])
    return replace(tool_error, hints=tuple(hints))


def _tool_error(error: BaseException, scene: RunScene) -> ToolError:
    if isinstance(error, LimitError):
        return _limit(error)
    if isinstance(error, OutOfMemoryError):
        return _limit(too_much_memory(scene.limits))
    if isinstance(error, ProtocolError):
        message = f"the sandbox violated its protocol, and its worker was stopped: {_short(str(error))}"
        return ToolError(code="execution_error", message=message, reason="crashed")
    if isinstance(error, WorkerStartError):
        hint = "install it again: pip install --force-reinstall pydantic-monty-runtime"
        return ToolError(code="execution_error", message=str(error), reason="crashed", hints=(hint,))
    if isinstance(error, WorkerError):
        hint = "the code crashed the sandbox's worker; do less at once"
        return ToolError(code="execution_error", message="the sandbox broke down", reason="crashed", hints=(hint,))
    if isinstance(error, CodeSyntaxError):
        place = _place(error, scene)
        hints = (*place, *rename_advice(" ".join(place), scene.names, scene.allowed))
        message = f"SyntaxError: {_short(error.message)}"
        return ToolError(code="invalid_args", message=message, reason="syntax", hints=hints)
    if isinstance(error, CodeError):
        return _code_error(error, scene)
    if isinstance(error, NeverAwaitedError):
        message = "the result contains a call that was never awaited"
        hint = "put await before it"
        return ToolError(code="execution_error", message=message, reason="never_awaited", hints=(hint,))
    if isinstance(error, TooManyDigitsError):
        hint = "format it, or use only its first digits: n // 10**k"
        return ToolError(code="execution_error", message=str(error), hints=(hint,))
    raise error


def _limit(hit: LimitError, *place: str) -> ToolError:
    return ToolError(code="execution_error", message=str(hit), reason=hit.reason, hints=(*place, hit.hint))


def _code_error(error: CodeError, scene: RunScene) -> ToolError:
    kind, text = error.kind, error.message
    place = _place(error, scene)
    if failed := scene.failures.get(text):  # an uncaught failure of a tool: keep its message and hints
        message = _short(failed.message) if _is_ours(failed) else failed.message.strip()
        return replace(failed, code="execution_error", message=message, hints=(*place, *failed.hints), details=())
    text = text[:MAX_READ]
    if is_limit(error):
        return _limit((too_slow if kind == "TimeoutError" else too_much_memory)(scene.limits), *place)
    if kind == "SystemExit":
        text = "code can't end the process; let it end, or raise another exception"
    if "exceptions can only be called with" in text:
        kind, text = "TypeError", "an exception takes one string here: raise ValueError(str(…))"
    syntax = kind == "NotImplementedError" and "syntax parser" in text
    shown = _short(text.replace("The monty syntax parser does not yet support ", "not supported here: "))
    message = f"{kind}: {shown}" if text else kind
    hint = _way_around(kind, text, scene.names, scene.allowed) or missing_key_hint(
        kind, text, scene.code, failed_lines(error, scene), scene.names, scene.returned
    )
    return ToolError(
        code="invalid_args" if syntax else "execution_error",
        message=message,
        reason="syntax" if syntax else None,
        hints=(*place, *((hint,) if hint else ())),
    )


def _is_ours(failed: ToolError) -> bool:
    """Return whether the message of a failed call is OneTool's, not the tool's."""
    return failed.code == "tool_not_found" or bool(failed.details)


def is_limit(error: CodeError) -> bool:
    """Return whether the sandbox ended the code for exceeding a limit, as opposed to code raising a similar error."""
    if error.kind == "TimeoutError":
        return OUT_OF_TIME.fullmatch(error.message) is not None
    return error.kind == "MemoryError" and OUT_OF_MEMORY.match(error.message) is not None


def _way_around(kind: str, text: str, names: ScriptNames, allowed: Collection[str] | None) -> str | None:
    if kind in ("ModuleNotFoundError", "ImportError") and (found := re.search(r"No module named '([\w.]+)'", text)):
        return without_module(found[1], (*MODULES, *names.words(allowed)))
    if kind == "NameError" and (found := re.search(r"name '(\w+)' is not defined", text)):
        return MISSING_BUILTINS.get(found[1]) or did_you_mean(found[1], names.words(allowed))
    if kind == "TypeError" and (found := re.match(r"\w+", text)):  # `filter expected 2 arguments`
        spec = names.catalogue.get(found[0])
        if spec and may_be_named(spec, allowed) and (spelling := names.spelling(spec)) != spec.name:
            return f"{spec.name}() is Python's; the tool {spec.name} is {spelling}(…)"
    if kind == "AttributeError" and (found := re.search(r"'(\w+)' object has no attribute '(\w+)'", text)):
        pack = names.pack(found[1])
        if pack is None:
            return None
        tools = pack.named(allowed)
        longer = next((f"write {pack.word}.{tool}(…)" for tool in tools if tool.startswith(f"{found[2]}_")), None)
        return did_you_mean(found[2], tools) or longer
    return next((way for words, way in WAYS_AROUND.get(kind, {}).items() if words in text), None)


def _place(error: CodeError, scene: RunScene) -> tuple[str, ...]:
    """Return the innermost line of the caller's own code, as a hint."""
    if (lines := failed_lines(error, scene)) is None:
        return ()
    first, last = lines
    where = f"line {first}" if first == last else f"lines {first} to {last}"
    return (f"{where}: {cut(scene.code.split(chr(10))[first - 1].strip(), MAX_LINE)}",)


def failed_lines(error: BaseException, scene: RunScene) -> tuple[int, int] | None:
    """Return the first and last line of the code that failed, if known.

    An error that passes through a `try` or `with` gets another line of that statement from the sandbox. Then these are
    the lines of the whole statement.
    """
    if not isinstance(error, CodeError):
        return None
    lines = scene.code.count("\n") + 1
    for frame in reversed(error.trace):
        if frame.filename == scene.feed and 0 < frame.line <= lines:
            is_exact = isinstance(error, CodeSyntaxError) or is_limit(error)  # nothing catches these
            return (frame.line, frame.line) if is_exact else _around(scene.code, frame.line)
    return None


def _around(code: str, line: int) -> tuple[int, int]:
    """Return the lines of the outermost `try` or `with` around a line, within its function; else the line itself."""
    tree = parse(code)
    nodes: list[ast.AST] = [] if tree is None else [tree]
    for node in nodes:  # which grows during the loop
        for child in ast.iter_child_nodes(node):
            first, last = getattr(child, "lineno", 0), getattr(child, "end_lineno", 0)
            if not isinstance(child, ast.stmt | ast.ExceptHandler | ast.match_case) or (
                first and not first <= line <= last
            ):
                continue
            if isinstance(child, ast.Try | ast.With) and not _has_function(child, line):
                return first, last
            nodes.append(child)
    return line, line


def _has_function(node: ast.AST, line: int) -> bool:
    """Return whether a function inside this statement contains the line."""
    return any(
        isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef) and inner.lineno <= line <= (inner.end_lineno or 0)
        for inner in ast.walk(node)
    )


def _short(text: str) -> str:
    return cut(" ".join(text.split()), MAX_MESSAGE)


# Modules and syntax that the sandbox's Python lacks, and their replacements

NO_FILES = "code here has no files; use the fs tools: fs.read_file(path=…), fs.list_dir(path=…)"
NO_PROGRAMS = "code here can't start programs; call a tool that does"
NO_NETWORK = "code here has no network; call a tool that has access"
SIDE_BY_SIDE = "await asyncio.gather(…) runs tool calls concurrently; asyncio here has gather, run and sleep"
COMMON_MODULES = (
    "available: collections, csv, datetime, functools, itertools, json, math, random, re, statistics, string, "
    "textwrap, urllib.parse and others"
)
EACH_IN_TRY = "wrap each call in an async function with try/except, and gather those"
# By exception type and the sandbox's message.
WAYS_AROUND = {
    "NotImplementedError": {
        "yield": "collect the items in a list and return it",
        "'del' statement": "use list.pop, dict.pop, or set the name to None",
        "class inheritance": "write a class without a base; raise ValueError(…) instead of your own exceptions",
        "method decorators": "write a method without one, or a plain function",
        "exception groups": "use a plain except",
        "async with": "open and close it yourself, or gather the calls",
        "async for": "use a plain for over a list",
        "import *": "import the names that you need",
        "cannot suspend in this synchronous context": "tools can't be called by map, filter, sorted or reduce: "
        "call them in a list comprehension first",
        "gather() does not yet support": EACH_IN_TRY,
    },
    "TypeError": {
        "unexpected keyword argument 'default'": "convert such values first, with str(…) or isoformat()",
        "callable replacement": "loop over re.finditer and join the parts",
        "is not an iterator": "use iter(…); generator expressions are lists here",
        "'coroutine'": "put await before it",
    },
    "AttributeError": {
        "module 'asyncio' has no attribute": SIDE_BY_SIDE,
        "module 'sys' has no attribute 'exit'": "let the code end, or raise an exception",
        "module 'os' has no attribute 'system'": NO_PROGRAMS,
    },
    "ImportError": {"(unknown location)": "the sandbox has the module, but not all of it: write the code yourself"},
    "RuntimeError": {
        "is not supported in this environment": "code here sees nothing of the machine; a pack reads its secrets with "
        "get_secret",
    },
    "OSError": {"requires the host to return a file handle": NO_FILES},
    "PermissionError": {"Permission denied": NO_FILES},
    "RecursionError": {"maximum recursion depth": "use a loop"},
}
MISSING_MODULES = {
    "threading": SIDE_BY_SIDE,
    "concurrent": SIDE_BY_SIDE,
    "multiprocessing": SIDE_BY_SIDE,
    "subprocess": NO_PROGRAMS,
    "socket": NO_NETWORK,
    "http": NO_NETWORK,
    "urllib": NO_NETWORK,
    "requests": NO_NETWORK,
    "httpx": NO_NETWORK,
    "aiohttp": NO_NETWORK,
}


def without_module(name: str, known: Collection[str]) -> str:
    """Return advice on replacing a missing module."""
    root = name.partition(".")[0]
    near = did_you_mean(name, known) if root not in sys.stdlib_module_names else None
    return MISSING_MODULES.get(root) or near or COMMON_MODULES
