"""What went wrong in a run, for a model: one line of what, the line of code, and how to repair it."""

import re
import sys
from collections.abc import Mapping

from msgspec.structs import replace
from pydantic_monty import MontyCrashedError, MontyError, MontyRuntimeError, MontySyntaxError

from onetool.core.call import ToolError
from onetool.core.nearest import did_you_mean
from onetool.script.imports import MODULES
from onetool.script.limits import LimitHit, Limits, too_much_memory, too_slow
from onetool.script.names import Names

LONGEST_MESSAGE = 260
LONGEST_LINE = 80
LONGEST = 470  # characters of a message and its hints: an error should cost its reader less than 120 tokens

NO_FILES = "code here has no files; use the fs tools: fs.read_file(path=…), fs.list_dir(path=…)"
NO_PROGRAMS = "code here can't start programs; call a tool that does"
NO_NETWORK = "code here has no network; call a tool that has"
SIDE_BY_SIDE = "await asyncio.gather(…) runs tool calls side by side; asyncio here has gather, run and sleep"
# What the sandbox's Python lacks, by the exception and the words it uses for that, and the way around.
WAYS_AROUND = {
    "NotImplementedError": {
        "yield": "collect the items in a list and return it",
        "'del' statement": "use list.pop, dict.pop, or set the name to None",
        "class inheritance": "write a class without a base; raise ValueError(…) instead of own exceptions",
        "method decorators": "write a method without one, or a plain function",
        "exception groups": "use a plain except",
        "async with": "call and close by hand, or gather the calls",
        "async for": "use a plain for over a list",
        "import *": "import the names that you need",
        "cannot suspend in this synchronous context": "tools can't be called by map, filter, sorted or reduce: "
        "call them in a list comprehension first",
        "gather() does not yet support": "wrap each call in an async function with try/except, and gather those",
    },
    "TypeError": {
        "can't be awaited": "put await directly before the tool call; elsewhere it gives its value at once",
        "awaitable is required": "put the tool calls themselves into gather; elsewhere they give values",
        "'coroutine'": "put await before it; a call that is awaited in one place is a future in all of them",
    },
    "AttributeError": {
        "module 'asyncio' has no attribute": SIDE_BY_SIDE,
        "module 'sys' has no attribute 'exit'": "let the code end, or raise an exception",
        "module 'os' has no attribute 'system'": NO_PROGRAMS,
    },
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
    "requests": NO_NETWORK,
    "httpx": NO_NETWORK,
    "aiohttp": NO_NETWORK,
}
MISSING_BUILTINS = {
    "callable": "compare types, or try the call",
    "globals": "keep your values in a dict",
    "vars": "name the attributes that you need",
    "dir": "name the attributes that you need; ot.call works with any tool's name",
    "issubclass": "use isinstance",
    "super": "classes here have no bases",
    "bytearray": "use bytes or a list of ints",
    "input": "nobody is there to answer: pass values in the code",
    "open": "code here has no files; use fs.read_file(path=…)",
    "exit": "let the code end, or raise an exception",
    "quit": "let the code end, or raise an exception",
    "compile": "write the code itself",
    "staticmethod": "write a plain function",
    "classmethod": "write a plain function",
    "__import__": "use an import statement",
    "breakpoint": "print what you want to see",
}


def failure(
    error: BaseException, code: str, names: Names, limits: Limits, failures: Mapping[str, ToolError]
) -> ToolError:
    """Whatever ended a run, as the error that its caller gets."""
    told = _told(error, code, names, limits, failures)
    left = LONGEST - len(told.message)
    hints: list[str] = []
    for hint in told.hints:
        if left > 0:
            hints.append(_cut(hint, left))
            left -= len(hints[-1])
    return replace(told, hints=tuple(hints))


def _told(
    error: BaseException, code: str, names: Names, limits: Limits, failures: Mapping[str, ToolError]
) -> ToolError:
    if isinstance(error, LimitHit):
        return ToolError(code="execution_error", message=str(error), reason=error.reason, hints=(error.hint,))
    if isinstance(error, MontyCrashedError):
        hint = "the code made the sandbox's worker end; do less at once"
        return ToolError(code="execution_error", message="the sandbox broke down", reason="crashed", hints=(hint,))
    if isinstance(error, MontySyntaxError):
        return _syntax(error, code)
    if isinstance(error, MontyRuntimeError):
        return _raised(error, code, names, limits, failures)
    if isinstance(error, ValueError) and "digits" in str(error):
        hint = "format it, or keep to its first digits: n // 10**k"
        return ToolError(code="execution_error", message="a whole number of more than 4300 digits", hints=(hint,))
    if isinstance(error, MontyError):
        return ToolError(code="execution_error", message=_short(str(error)))
    raise error


def _syntax(error: MontySyntaxError, code: str) -> ToolError:
    message = f"SyntaxError: {_short(error.display('msg'))}"
    return ToolError(code="invalid_args", message=message, reason="syntax", hints=_place(error, code))


def _raised(
    error: MontyRuntimeError, code: str, names: Names, limits: Limits, failures: Mapping[str, ToolError]
) -> ToolError:
    kind, _, text = error.display("type-msg").partition(": ")
    place = _place(error, code)
    if failed := failures.get(text):  # a tool's failure that the code did not catch: its own words and hints
        return ToolError(
            code="execution_error", message=_short(text), reason=failed.reason, hints=(*place, *failed.hints)
        )
    if kind == "TimeoutError" and "time limit exceeded" in text:
        return _limit(too_slow(limits), place)
    if kind == "MemoryError":
        return _limit(too_much_memory(limits), place)
    if kind == "RuntimeError" and text.startswith("suspension limit"):
        return _limit(LimitHit("calls", "the code asked for too much", "do the work in several runs"), place)
    if kind == "SystemExit" or "exceptions can only be called" in text:
        kind, text = "SystemExit", "code can't end the process; let it end, or raise another exception"
    syntax = kind == "NotImplementedError" and "syntax parser" in text
    message = f"{kind}: {_short(_in_our_words(text))}" if text else kind
    hint = _way_around(kind, text, names)
    return ToolError(
        code="invalid_args" if syntax else "execution_error",
        message=message,
        reason="syntax" if syntax else None,
        hints=(*place, *((hint,) if hint else ())),
    )


def _limit(hit: LimitHit, place: tuple[str, ...]) -> ToolError:
    return ToolError(code="execution_error", message=str(hit), reason=hit.reason, hints=(*place, hit.hint))


def _in_our_words(text: str) -> str:
    return text.replace("The monty syntax parser does not yet support ", "not supported here: ")


def _way_around(kind: str, text: str, names: Names) -> str | None:
    if kind in ("ModuleNotFoundError", "ImportError") and (found := re.search(r"No module named '([\w.]+)'", text)):
        near = did_you_mean(found[1], MODULES) if found[1] not in sys.stdlib_module_names else None
        return MISSING_MODULES.get(found[1]) or near or f"there are: {', '.join(sorted(MODULES))}"
    if kind == "NameError" and (found := re.search(r"name '(\w+)' is not defined", text)):
        return MISSING_BUILTINS.get(found[1]) or did_you_mean(found[1], names.words())
    if kind == "AttributeError" and (found := re.search(r"'(\w+)' object has no attribute '(\w+)'", text)):
        pack = names.pack(found[1])
        return did_you_mean(found[2], pack.tools) if pack else None
    return next((way for words, way in WAYS_AROUND.get(kind, {}).items() if words in text), None)


def _place(error: MontyRuntimeError | MontySyntaxError, code: str) -> tuple[str, ...]:
    """The line of the code where it happened: the innermost one that is the writer's own."""
    frames = [frame for frame in error.traceback() if frame.filename.startswith("<python-input")]
    lines = code.split("\n")
    for frame in reversed(frames):
        if 0 < frame.line <= len(lines):
            return (f"line {frame.line}: {_cut(lines[frame.line - 1].strip(), LONGEST_LINE)}",)
    return ()


def _short(text: str) -> str:
    return _cut(" ".join(text.split()), LONGEST_MESSAGE)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
