"""Advice for errors caused by what the sandbox's Python lacks: modules, builtins and syntax."""

import sys
from collections.abc import Collection

from onetool.core.text import did_you_mean

NO_FILES = "code here has no files; use the fs tools: fs.read_file(path=…), fs.list_dir(path=…)"
NO_PROGRAMS = "code here can't start programs; call a tool that does"
NO_NETWORK = "code here has no network; call a tool that has"
SIDE_BY_SIDE = "await asyncio.gather(…) runs tool calls side by side; asyncio here has gather, run and sleep"
MOST_WANTED = (
    "there are collections, csv, datetime, functools, itertools, json, math, random, re, statistics, string, textwrap, "
    "urllib.parse and some more"
)
EACH_IN_TRY = "wrap each call in an async function with try/except, and gather those"
# What the sandbox's Python lacks, by the exception and the words it uses for that, and the way around.
BY_WORDS = {
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
        "gather() does not yet support": EACH_IN_TRY,
    },
    "TypeError": {
        "can't be awaited": "put await directly before the tool call; elsewhere it gives its value at once",
        "awaitable is required": "put the tool calls themselves into gather, a list with a star: gather(*calls)",
        "unexpected keyword argument 'default'": "convert such values first, with str(…) or isoformat()",
        "callable replacement": "loop over re.finditer and join the parts",
        "is not an iterator": "use iter(…); generator expressions are lists here",
        "'coroutine'": "put await before it; a call that is awaited in one place is a future in all of them",
    },
    "AttributeError": {
        "module 'asyncio' has no attribute": SIDE_BY_SIDE,
        "module 'sys' has no attribute 'exit'": "let the code end, or raise an exception",
        "module 'os' has no attribute 'system'": NO_PROGRAMS,
    },
    "ImportError": {"(unknown location)": "the sandbox has the module, but not all of it: write it out"},
    "RuntimeError": {
        "is not supported in this environment": "code here sees nothing of the machine; a pack reads its secrets with "
        "get_secret",
    },
    "OSError": {"requires the host to return a file handle": NO_FILES},
    "PermissionError": {"Permission denied": NO_FILES},
    "RecursionError": {"maximum recursion depth": "use a loop"},
}
MODULES = {
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
BUILTINS = {
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


def module(name: str, known: Collection[str]) -> str:
    """What to do without a module that is not there."""
    root = name.partition(".")[0]
    near = did_you_mean(name, known) if root not in sys.stdlib_module_names else None
    return MODULES.get(root) or near or MOST_WANTED
