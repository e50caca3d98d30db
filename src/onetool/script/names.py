"""ScriptNames: the names of a catalogue's tools in code, and the tools as sandbox objects."""

import builtins
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from keyword import kwlist
from threading import Lock
from typing import Any

from onetool.core.registry import LazyTool, Snapshot, ToolMap, as_spec
from onetool.core.signature import as_identifier, as_identifiers
from onetool.core.spec import ToolSpec
from onetool.sandbox.wire import Function, HostObject

BUILTINS = (frozenset(dir(builtins)) | {"__file__", "__name__"}) - {"copyright", "credits", "license"}  # of `site`
MISSING_BUILTINS = {
    "callable": "compare types, or try the call",
    "globals": "keep your values in a dict",
    "vars": "name the attributes that you need",
    "dir": "name the attributes that you need; ot.call works with any tool's name",
    "issubclass": "use isinstance",
    "super": "classes here have no bases",
    "bytearray": "use bytes or a list of ints",
    "input": "code can't ask a person: pass values in the code",
    "open": "code here has no files; use fs.read_file(path=…)",
    "exit": "let the code end, or raise an exception",
    "quit": "let the code end, or raise an exception",
    "compile": "write the code itself",
    "staticmethod": "write a plain function",
    "classmethod": "write a plain function",
    "__import__": "use an import statement",
    "breakpoint": "print what you want to see",
    "help": "ot.help(…) explains a tool",
    "ascii": "use repr",
    "memoryview": "use bytes",
    "delattr": "set the attribute to None",
    "aiter": "use a plain for over a list",
    "anext": "use a plain for over a list",
}
"""Functions that the sandbox's Python lacks, with their replacements. A tool may have such a name."""
RESERVED = BUILTINS - MISSING_BUILTINS.keys()
CALL = ToolSpec(
    name="ot.call",
    description="Call any tool by its name, also one whose name is not valid in Python.",
    input_schema={
        "type": "object",
        "properties": {"name": {"type": "string"}, "args": {"type": "object"}},
        "required": ["name"],
    },
)
"""`ot.call("any name", {…})` is part of the language: it runs the named tool. Both calls are counted."""

ALL = ToolSpec(
    name="ot.all",
    description="Call a paginated tool and return the items of all pages.",
    input_schema={
        "type": "object",
        "properties": {"tool": {}, "args": {"type": "object"}, "limit": {"type": "integer"}, "key": {"type": "string"}},
        "required": ["tool"],
        "additionalProperties": True,
    },
)
"""`ot.all(pack.tool, …)` is part of the language, too: its calls are calls of the tool, each counted and recorded."""
LANGUAGE = (CALL, ALL)


class ScriptPack:
    """A pack in code: its tools by their names as Python identifiers."""

    __slots__ = ("spelled", "spellings", "tools", "word")

    def __init__(self, word: str, tools: Mapping[str, ToolSpec | LazyTool]) -> None:
        self.word = word
        self.spelled = as_identifiers(tools)  # identifier -> name inside the pack
        self.spellings = {own: spelling for spelling, own in self.spelled.items()}
        self.tools = ToolMap({spelling: tools[own] for spelling, own in self.spelled.items()})

    def named(self, allowed: Collection[str] | None) -> list[str]:
        """Return the pack's tools that a message may name."""
        return [own for own, tool in self.tools.held.items() if may_be_named(tool, allowed)]


def may_be_named(spec: ToolSpec | LazyTool, allowed: Collection[str] | None) -> bool:
    """Return whether a message may name a tool: callers must not learn about tools that they may not call."""
    return allowed is None or spec in LANGUAGE or spec.name in allowed


class ScriptNames:
    """The meanings of names in code, unless the code defines them itself."""

    def __init__(self, catalogue: Snapshot, aliases: Mapping[str, str] | None = None) -> None:
        self.catalogue = catalogue
        self._by_slug: dict[str, list[ToolSpec | LazyTool]] | None = None
        tools_of: dict[str, dict[str, ToolSpec | LazyTool]] = {}
        bare: dict[str, ToolSpec] = {}
        for spec in catalogue.own():
            pack, dot, own = spec.name.partition(".")
            if dot:
                tools_of.setdefault(pack, {})[own] = spec
            else:
                bare[pack] = spec
        for own, spec in bare.items():  # they are listed under this pack, and can also be called with it
            tools_of.setdefault(spec.pack, {}).setdefault(own, spec)
        tools_of.setdefault("ot", {}).update({"call": CALL, "all": ALL})
        self._tools_of: dict[str, Mapping[str, ToolSpec | LazyTool]] = {**tools_of}
        for pack, tools in catalogue.lazy.items():
            self._tools_of[pack] = {**tools_of[pack], **tools} if pack in tools_of else tools
        self._pack_of = as_identifiers(self._tools_of)
        self._packs: dict[str, ScriptPack] = {}
        self._words: dict[str, str] | None = None  # the names of packs in code
        # A tool with the name of a pack keeps it: `weather()` is the tool, and `weather.forecast()` a tool of the pack.
        self.functions = {word: bare[own] for word, own in as_identifiers(bare, RESERVED).items()}
        self.useless: dict[str, str] = {}  # unusable aliases with the reason
        for alias, target in (aliases or {}).items():
            spec = self.tool(target) or catalogue.get(target)
            if spec is None:
                self.useless[alias] = f"there is no tool {target}"
            elif alias in RESERVED:
                self.useless[alias] = f"{alias} is a built-in name of Python"
            elif alias in self.functions:
                self.useless[alias] = f"{alias} is already a tool"
            elif as_identifier(alias) != alias:
                self.useless[alias] = f"{alias} is not a valid name in code; use {as_identifier(alias)}"
            else:
                self.functions[alias] = spec

    def pack(self, word: str) -> ScriptPack | None:
        """Return the pack with this name in code. Built on first use, because few of many packs are used."""
        pack = self._packs.get(word)
        if pack is None and word in self._pack_of:
            pack = self._packs[word] = ScriptPack(word, self._tools_of[self._pack_of[word]])
        return pack

    def shared(self, waiting: Iterable[str] = ()) -> list[str]:
        """Return the names that stand for both a function and a pack.

        `waiting` are packs whose tools are not known yet.
        """
        packs = {*self._pack_of, *waiting}
        return [word for word in self.functions if word in packs]

    def tool(self, dotted: str) -> ToolSpec | None:
        """Return the tool for `pack.tool` in code or, without a pack, for `tool`."""
        word, dot, own = dotted.partition(".")
        if not dot or own == "__call__":  # the sandbox calls an object by this method
            return self.functions.get(word)
        pack = self.pack(word)
        tool = pack.tools.held.get(own) if pack else None
        return None if tool is None else as_spec(tool)

    def __contains__(self, word: str) -> bool:
        return word in self._pack_of or word in self.functions

    def words(self, allowed: Collection[str] | None = None) -> Iterable[str]:
        """Return the names that code can begin with; with an allow-list, those that lead to one of its tools."""
        if allowed is None:
            return dict.fromkeys((*self._pack_of, *self.functions))
        packs = {word: self._tools_of[pack].values() for word, pack in self._pack_of.items()}
        return (
            *(word for word, tools in packs.items() if any(may_be_named(spec, allowed) for spec in tools)),
            *(word for word, spec in self.functions.items() if may_be_named(spec, allowed)),
        )

    def words_of(self, packs: Collection[str]) -> list[str]:
        """Return the names of these packs in code."""
        return [word for word, pack in self._pack_of.items() if pack in packs]

    def spellings(self) -> "Spellings":
        """Return the names of all tools with their spellings in code."""
        return Spellings(self)

    def with_slug(self, slug: str) -> list[ToolSpec]:
        """Return the tools whose name without the pack is this slug, with dashes or underscores."""
        if self._by_slug is None:
            self._by_slug = {}
            lazy = (tool for tools in self.catalogue.lazy.values() for tool in tools.values())
            for tool in (*(spec for spec in self.catalogue.own() if not spec.hidden), *lazy):
                self._by_slug.setdefault(tool.name.rpartition(".")[2].replace("_", "-"), []).append(tool)
        return [as_spec(tool) for tool in self._by_slug.get(slug.replace("_", "-"), [])]

    def spelling(self, spec: ToolSpec) -> str:
        """Return the expression that code calls the tool by."""
        return self.spelling_of(spec.name)

    def spelling_of(self, name: str) -> str:
        pack, dot, own = name.partition(".")
        if not dot:
            return next((word for word, function in self.functions.items() if function.name == name), name)
        if self._words is None:
            self._words = {pack: word for word, pack in self._pack_of.items()}
        word = self._words[pack]
        named = self.pack(word)
        return f"{word}.{named.spellings.get(own, own) if named else own}"


class SandboxTools:
    """The tools of a catalogue as sandbox objects, created once per catalogue and shared by its runs.

    A pack is an object without attributes. Each attribute is looked up by the object's ID when needed, so the size of a
    pack does not matter.
    """

    def __init__(self, names: ScriptNames) -> None:
        self.names = names
        self.prepared: dict[str, Any] = {}  # code that was parsed and checked against this catalogue
        self._lock = Lock()
        self._objects: dict[str, HostObject] = {}
        self._packs: dict[bytes, str] = {}

    def value(self, word: str) -> HostObject | Function | None:
        """Return the sandbox value of a name: a pack or a function. None for other names."""
        if (host := self._objects.get(word)) is not None:
            return host
        if self.names.pack(word) is None:
            return Function(word) if word in self.names.functions else None
        with self._lock:
            if word not in self._objects:
                # A class named like the pack, because the sandbox names it when an attribute is missing.
                host = HostObject(word)
                self._packs[host.id] = word
                self._objects[word] = host
            return self._objects[word]

    def member(self, receiver: bytes, name: str) -> Function | None:
        """Return the value of `pack.name` where it is not called directly."""
        dotted = self.dotted(receiver, name)
        return None if self.names.tool(dotted) is None else Function(dotted)

    def dotted(self, receiver: bytes, name: str) -> str:
        """Return the name of a call or lookup, prefixed with its pack."""
        return f"{self._packs[receiver]}.{name}" if receiver in self._packs else name


class Spellings(Mapping[str, str]):
    """A mapping from the names of all tools to their spellings in code. Packs are read only when used."""

    def __init__(self, names: ScriptNames) -> None:
        self._names = names

    def __getitem__(self, name: str) -> str:
        if not self._names.catalogue.has(name):
            raise KeyError(name)
        return self._names.spelling_of(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names.catalogue.names())

    def __len__(self) -> int:
        return len(self._names.catalogue)


def rename_advice(line: str, names: ScriptNames, allowed: Collection[str] | None = None) -> tuple[str, ...]:
    """Return advice on names in the line that are not Python identifiers: a keyword as an argument, a dash."""
    if keyword := re.search(rf"[(,]\s*({'|'.join(kwlist)})\s*=[^=]", line):
        return (f"write {keyword[1]}_=…",)
    for name in names.catalogue.names():
        spec = names.catalogue.get(name) if name in line else None
        if spec and may_be_named(spec, allowed) and (spelling := names.spelling(spec)) != name:
            return (f"write {spelling}(…)",)
    return ()
