"""Registry: names to tools, in the order of registration. Refuses what is wrong; hands out frozen snapshots.

A Source is a place that tools come from. Its Catalogue has tools, prompts and resources. Behind each prompt and
resource is a ToolSpec that no list shows: reading a resource is a call like any other, with a deadline, the pack's
settings and secrets, and a record.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from threading import Lock
from typing import Any, Protocol, overload

import msgspec

from onetool.core.errors import DuplicateToolError, Mistake
from onetool.core.principal import AllowList, is_pattern
from onetool.core.spec import NOTHING, Handlers, ToolSpec, accept
from onetool.core.text import lazy_pattern

Further = Callable[[str], ToolSpec | None]
"""Finds tools that are in no list but can be called by their full name: `bundle.tool@version`."""


class LazyTool(Protocol):
    """A tool of which little is in memory: its spec is made when somebody needs it."""

    @property
    def name(self) -> str: ...

    @property
    def pack(self) -> str: ...

    @property
    def enabled(self) -> bool: ...

    @property
    def kept_as(self) -> str:
        """Its id in the store that keeps it."""
        ...

    @property
    def digest(self) -> bytes:
        """Of all that its texts are made of."""
        ...

    def spec(self) -> ToolSpec:
        """Return the same object as long as somebody has it."""
        ...


LazyPacks = Mapping[str, Mapping[str, LazyTool]]
"""Packs by their names, and their tools by their names inside of it. Who changes a pack makes another mapping of it."""

NO_PACKS: LazyPacks = {}


def is_shown(tool: "ToolSpec | LazyTool") -> bool:
    """Return whether lists show the tool."""
    return tool.enabled and not (isinstance(tool, ToolSpec) and tool.hidden)


def count_shown(tools: "Mapping[str, ToolSpec | LazyTool]") -> int:
    """Return how many tools of a pack are shown."""
    return sum(map(is_shown, tools.values()))


def shown_packs(packs: LazyPacks) -> list[str]:
    return [pack for pack, tools in packs.items() if any(map(is_shown, tools.values()))]


class ToolMap(Mapping[str, ToolSpec]):
    """Tools by some key. Those that are lazy are made when they are asked for."""

    __slots__ = ("held",)

    def __init__(self, held: Mapping[str, ToolSpec | LazyTool]) -> None:
        self.held = held

    def __getitem__(self, key: str) -> ToolSpec:
        return as_spec(self.held[key])

    def __iter__(self) -> Iterator[str]:
        return iter(self.held)

    def __len__(self) -> int:
        return len(self.held)

    def __contains__(self, key: object) -> bool:
        return key in self.held


class ToolList(Sequence[ToolSpec]):
    """Tools in an order. `held` are the same, and those that are lazy are not made."""

    __slots__ = ("held",)

    def __init__(self, held: list[ToolSpec | LazyTool]) -> None:
        self.held = held

    @overload
    def __getitem__(self, at: int) -> ToolSpec: ...

    @overload
    def __getitem__(self, at: slice) -> "list[ToolSpec]": ...

    def __getitem__(self, at: int | slice) -> "ToolSpec | list[ToolSpec]":
        return as_spec(self.held[at]) if isinstance(at, int) else [as_spec(one) for one in self.held[at]]

    def __len__(self) -> int:
        return len(self.held)

    def __iter__(self) -> Iterator[ToolSpec]:
        return map(as_spec, self.held)


class Snapshot:
    """The tools at one moment. Nothing that happens to the registry afterwards changes it.

    Tools of bundles may be very many: they are lazy, and come last.
    """

    __slots__ = ("_further", "_packs", "_tools", "lazy")

    def __init__(self, tools: dict[str, ToolSpec], further: Further | None = None, lazy: LazyPacks = NO_PACKS) -> None:
        self._tools = tools
        self._further = further
        self.lazy = lazy
        self._packs: dict[str, ToolMap] | None = None

    def get(self, name: str) -> ToolSpec | None:
        """Return the tool of that name, or None: the caller handles a missing tool."""
        found = self._tools.get(name)
        if found is None and (lazy := lazy_tool(self.lazy, name)) is not None:
            return lazy.spec()
        return found if found is not None or self._further is None else self._further(name)

    def list(self, allowed: Iterable[str] | None = None) -> list[ToolSpec]:
        """Return all tools in the order of registration; with an allow-list exactly those that it names."""
        return [*self.listed(allowed)]

    def listed(self, allowed: Iterable[str] | None = None) -> ToolList:
        """Return the same, and lazy tools stay lazy until somebody needs them."""
        if allowed is None:
            return ToolList([*self.each()])
        if isinstance(allowed, str):
            raise TypeError(f"allowed is a list of names: [{allowed!r}]")
        names = dict.fromkeys(allowed)
        packs = dict.fromkeys(name.partition(".")[0] for name in names)
        lazy = (tool for pack, tools in self.lazy.items() if pack in packs for tool in tools.values())
        listed = [spec for name, spec in self._tools.items() if name in names]
        further = (self.get(name) for name in names if not self.has(name))
        others = (tool for tool in lazy if tool.name in names)
        return ToolList([*listed, *others, *(spec for spec in further if spec is not None)])

    def each(self) -> "Iterator[ToolSpec | LazyTool]":
        """Yield all tools in that order. A lazy pack is loaded when its turn comes."""
        yield from self._tools.values()
        for tools in self.lazy.values():
            yield from tools.values()

    def names(self) -> Collection[str]:
        if not self.lazy:
            return self._tools.keys()
        return {**self._tools, **{f"{pack}.{own}": None for pack, tools in self.lazy.items() for own in tools}}.keys()

    def own(self) -> Collection[ToolSpec]:
        """Return all tools but the lazy ones."""
        return self._tools.values()

    def packs(self) -> Mapping[str, ToolMap]:
        """Return each pack's tools by their names inside of it. Computed once."""
        if self._packs is None:
            packs: dict[str, dict[str, ToolSpec | LazyTool]] = {}
            for spec in self._tools.values():
                packs.setdefault(spec.pack, {})[spec.name.removeprefix(f"{spec.pack}.")] = spec
            self._packs = {pack: ToolMap(tools) for pack, tools in packs.items()}
            for pack, tools in self.lazy.items():
                self._packs[pack] = ToolMap({**packs[pack], **tools} if pack in packs else tools)
        return self._packs

    def allowing(self, patterns: Collection[str] | None) -> Collection[str] | None:
        """Return the allow-list that names and patterns (`web.*`) make of the current tools."""
        if isinstance(patterns, str):
            raise TypeError(f"an allow-list is a list of names and patterns: [{patterns!r}]")
        if patterns is None or isinstance(patterns, AllowList) or not any(map(is_pattern, patterns)):
            return patterns
        return AllowList(patterns, self.names())

    def unmatched(self, names: Iterable[str]) -> "list[str]":
        """Return the names that no tool has, and the patterns that none fits: typos in an allow-list."""
        names = [*names]
        there = self.names() if any(map(is_pattern, names)) else ()  # a server asks at its start, mostly about none
        return [name for name in names if not (AllowList((name,), there) if is_pattern(name) else name in self)]

    def has(self, name: str) -> bool:
        """Return whether lists have a tool of that name. No lazy tool is loaded."""
        return name in self._tools or lazy_tool(self.lazy, name) is not None

    def __len__(self) -> int:
        return len(self._tools) + sum(map(len, self.lazy.values()))

    def __contains__(self, name: object) -> bool:
        if not isinstance(name, str):
            return False
        return name in self._tools or self.has(name) or (self._further is not None and bool(self._further(name)))

    def __iter__(self) -> Iterator[ToolSpec]:
        return iter(self.listed())

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {len(self)} tools>"


def as_spec(tool: ToolSpec | LazyTool) -> ToolSpec:
    return tool if isinstance(tool, ToolSpec) else tool.spec()


def lazy_tool(packs: LazyPacks, name: str) -> LazyTool | None:
    if not packs:
        return None
    pack, _, own = name.partition(".")
    tools = packs.get(pack)
    return None if tools is None else tools.get(own)


class ToolRegistry(Snapshot):
    """The tools that there are now.

    `builtins` and `internals` are the handlers that definitions may name: functions of packs, and services of the app.
    """

    __slots__ = ("_builtins", "_frozen", "_internals", "_lock")

    def __init__(self, *, builtins: Handlers | None = None, internals: Handlers | None = None) -> None:
        super().__init__({})
        self._builtins: Handlers = builtins if builtins is not None else {}
        self._internals: Handlers = internals if internals is not None else {}
        self._lock = Lock()
        self._frozen: Snapshot | None = None

    def register(self, definition: Mapping[str, Any] | ToolSpec) -> ToolSpec:
        """Add a tool. Raises DefinitionError for one that is wrong or whose name is taken; then nothing has changed."""
        return self.add(accept(definition, self._builtins, self._internals))

    def add(self, spec: ToolSpec) -> ToolSpec:
        """Add a tool whose schema we made ourselves and need not check: compiling it can wait for its first call."""
        with self._lock:
            first = self._tools.get(spec.name)
            if first is None and (lazy := lazy_tool(self.lazy, spec.name)) is not None:
                first = lazy.spec()
            if first is not None:
                raise DuplicateToolError(duplicate(first, spec), tool=spec.name)
            self._tools[spec.name] = spec
            self._frozen = None
        return spec

    def snapshot(self) -> Snapshot:
        """Return a snapshot of the tools. Copied after a change, else shared."""
        if (frozen := self._frozen) is not None:
            return frozen
        with self._lock:
            if self._frozen is None:
                self._frozen = Snapshot(self._tools.copy(), self._further, self.lazy)
            return self._frozen

    # Another thread may register while somebody reads: what walks over all tools walks over a snapshot.

    def listed(self, allowed: Iterable[str] | None = None) -> ToolList:
        return self.snapshot().listed(allowed)

    def each(self) -> "Iterator[ToolSpec | LazyTool]":
        return self.snapshot().each()

    def own(self) -> Collection[ToolSpec]:
        return self.snapshot().own()

    def names(self) -> Collection[str]:
        return self.snapshot().names()

    def packs(self) -> Mapping[str, ToolMap]:
        return self.snapshot().packs()

    def replace(self, specs: Iterable[ToolSpec], further: Further | None = None, lazy: LazyPacks = NO_PACKS) -> None:
        """Swap all tools at once, as a reload does: a reader sees the old set or the new one, never a mixture."""
        tools: dict[str, ToolSpec] = {}
        for spec in specs:
            if spec.name in tools:
                raise DuplicateToolError(duplicate(tools[spec.name], spec), tool=spec.name)
            tools[spec.name] = spec
        with self._lock:
            self._tools, self._further, self.lazy = tools, further, lazy
            self._frozen = None


def duplicate(first: ToolSpec, second: ToolSpec, what: str | None = None) -> str:
    """Return the error for two tools, or other things, with one name."""
    return (
        f"duplicate {what or f'tool name {first.name!r}'}: the first one stays ({_shown(first)}), "
        f"the second is refused ({_shown(second)}); rename one of them"
    )


def _shown(spec: ToolSpec) -> str:
    origin = f"{spec.defined_in or spec.source}: " if spec.defined_in or spec.source != "local" else ""
    described = spec.description.strip().partition("\n")[0]
    return f"{origin}“{described[:60]}”"


# Prompts and resources

_PLACE = lazy_pattern(r"\{(\w+)\}")


class SingleTool:
    """A ToolLookup with one tool: a version of a bundle's, or what is behind a prompt or resource."""

    def __init__(self, spec: ToolSpec) -> None:
        self.spec = spec

    def get(self, name: str) -> ToolSpec | None:
        return self.spec if name == self.spec.name else None

    def names(self) -> Collection[str]:
        return (self.spec.name,)


class Prompt(msgspec.Struct, frozen=True, kw_only=True):
    """A text for a model that a person picks by name. What its spec gives is the text, or messages."""

    name: str
    spec: ToolSpec
    title: str | None = None


class Resource(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """Something to read by its URI, or by any URI of a form: `notes://{day}` is a template.

    What its spec gives is one of {"text": …}, {"blob": base64}, {"data": …} and, of MCP servers, {"contents": […]}.
    """

    uri: str
    name: str
    spec: ToolSpec
    mime_type: str | None = None
    server_listing: Mapping[str, Any] = NOTHING  # what its MCP server lists beside this: title, _meta …

    @cached_property
    def variables(self) -> tuple[str, ...]:
        """What a template leaves open."""
        return tuple(_PLACE.findall(self.uri))

    def match(self, uri: str) -> Mapping[str, Any] | None:
        """Return the values of the template's variables in this URI; None if it does not match. Each is one segment."""
        if not self.variables:
            return {} if uri == self.uri else None
        found = self._pattern.fullmatch(uri)
        if found is None:
            return None
        from urllib.parse import unquote  # listing tools does not need it

        values = {name: unquote(text) for name, text in found.groupdict().items()}
        # No slash that hides behind its code, nor a way up: a variable stands for a name, and some make a path of it.
        texts = values.values()
        return values if all(one.isprintable() and "/" not in one and one not in (".", "..") for one in texts) else None

    @cached_property
    def _pattern(self) -> "re.Pattern[str]":
        parts = _PLACE.split(self.uri)  # text, name, text, name, …, text
        pattern, last = re.escape(parts[0]), len(self.variables)
        for number, (name, text) in enumerate(zip(parts[1::2], parts[2::2], strict=True), 1):
            # Before another place of the same segment it ends where the text between them begins: else there were as
            # many ways to read an address as it has letters.
            end = "" if number == last or "/" in text else re.escape(text[:1])
            pattern += f"(?P<{name}>[^/{end}]+){re.escape(text)}"
        return re.compile(pattern)


# Sources


class Catalogue(msgspec.Struct, frozen=True, kw_only=True):
    """What a source had to offer when it was asked, and what was wrong with the rest."""

    tools: tuple[ToolSpec, ...] = ()
    lazy: LazyPacks = NO_PACKS  # tools of a source that has very many
    prompts: tuple[Prompt, ...] = ()
    resources: tuple[Resource, ...] = ()
    mistakes: tuple[Mistake, ...] = ()


class Source(Protocol):
    """One place where tools come from. What is broken in it is reported, never raised: the rest still works."""

    name: str

    def load(self) -> Catalogue: ...
