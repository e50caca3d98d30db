"""The tool registry: tools by name in registration order. The registry refuses invalid tools and provides immutable
snapshots. Each source provides a Catalogue of tools, prompts and resources.

Each prompt and resource has an unlisted ToolSpec: reading a resource is an ordinary call with a deadline, the pack's
settings and secrets, and a record.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from threading import Lock
from typing import Any, Protocol, overload

import msgspec

from onetool.core.errors import BadArguments, DuplicateToolError, Mistake, cut
from onetool.core.principal import AllowList, is_pattern
from onetool.core.signature import as_identifier
from onetool.core.spec import NOTHING, Handlers, ToolSpec, accept
from onetool.core.text import lazy_pattern, or_rather

Further = Callable[[str], ToolSpec | None]
"""Finds tools that are in no list but can be called by their full name: `bundle.tool@version`."""


class LazyTool(Protocol):
    """A tool whose spec is loaded on demand."""

    @property
    def name(self) -> str: ...

    @property
    def pack(self) -> str: ...

    @property
    def enabled(self) -> bool: ...

    @property
    def kept_as(self) -> str:
        """The tool's ID in its store."""
        ...

    @property
    def digest(self) -> bytes:
        """A hash of everything that the tool's descriptions depend on."""
        ...

    def spec(self) -> ToolSpec:
        """Return the spec: the same object as long as a reference to it exists."""
        ...


LazyPacks = Mapping[str, Mapping[str, LazyTool]]
"""Packs by name, with their tools by local name. A changed pack is replaced by a new mapping."""

NO_PACKS: LazyPacks = {}


def is_shown(tool: "ToolSpec | LazyTool") -> bool:
    """Return whether the tool is listed."""
    return tool.enabled and not (isinstance(tool, ToolSpec) and tool.hidden)


def count_shown(tools: "Mapping[str, ToolSpec | LazyTool]") -> int:
    """Return the number of listed tools in a pack."""
    return sum(map(is_shown, tools.values()))


def shown_packs(packs: LazyPacks) -> list[str]:
    return [pack for pack, tools in packs.items() if any(map(is_shown, tools.values()))]


class ToolMap(Mapping[str, ToolSpec]):
    """A mapping of tools. Lazy tools are loaded on access; `held` has them unloaded."""

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
    """A sequence of tools. Lazy tools are loaded on access; `held` has them unloaded."""

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
    """The tools at one moment, unaffected by later changes to the registry.

    Bundles may have very many tools: these are lazy, and come last.
    """

    __slots__ = ("_further", "_packs", "_tools", "lazy")

    def __init__(self, tools: dict[str, ToolSpec], further: Further | None = None, lazy: LazyPacks = NO_PACKS) -> None:
        self._tools = tools
        self._further = further
        self.lazy = lazy
        self._packs: dict[str, ToolMap] | None = None

    def get(self, name: str) -> ToolSpec | None:
        """Return the tool with this name, or None."""
        found = self._tools.get(name)
        if found is None and (lazy := lazy_tool(self.lazy, name)) is not None:
            return lazy.spec()
        return found if found is not None or self._further is None else self._further(name)

    def list(self, allowed: Iterable[str] | None = None) -> list[ToolSpec]:
        """Return all tools in registration order; with an allow-list, exactly the tools that it names."""
        return [*self.listed(allowed)]

    def listed(self, allowed: Iterable[str] | None = None) -> ToolList:
        """Return the listed tools. Lazy tools stay unloaded until they are used."""
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
        """Yield all tools in registration order. Lazy packs are loaded during iteration."""
        yield from self._tools.values()
        for tools in self.lazy.values():
            yield from tools.values()

    def names(self) -> Collection[str]:
        if not self.lazy:
            return self._tools.keys()
        return {**self._tools, **{f"{pack}.{own}": None for pack, tools in self.lazy.items() for own in tools}}.keys()

    def own(self) -> Collection[ToolSpec]:
        """Return all tools except the lazy ones."""
        return self._tools.values()

    def packs(self) -> Mapping[str, ToolMap]:
        """Return the tools of each pack by local name. The result is cached."""
        if self._packs is None:
            packs: dict[str, dict[str, ToolSpec | LazyTool]] = {}
            for spec in self._tools.values():
                packs.setdefault(spec.pack, {})[spec.name.removeprefix(f"{spec.pack}.")] = spec
            self._packs = {pack: ToolMap(tools) for pack, tools in packs.items()}
            for pack, tools in self.lazy.items():
                self._packs[pack] = ToolMap({**packs[pack], **tools} if pack in packs else tools)
        return self._packs

    def names_in_pack(self, pack: str, allowed: Collection[str] | None = None) -> set[str]:
        """Return the allowed tools of a pack, named as here or in code. Raises BadArguments if there are none."""
        words = {as_identifier(own): own for own in self.packs()} | {own: own for own in self.packs()}
        tools = self.packs()[words[pack]].held.values() if pack in words else ()
        names = {tool.name for tool in tools if allowed is None or tool.name in allowed}
        if not names:
            known = {tool.pack for tool in self.each() if allowed is None or tool.name in allowed}
            raise BadArguments(f"There is no pack {cut(pack, 100)!r}{or_rather(pack, known)}", reason="not_found")
        return names

    def allowing(self, patterns: Collection[str] | None) -> Collection[str] | None:
        """Return the allow-list of the current tools for names and patterns (`web.*`)."""
        if isinstance(patterns, str):
            raise TypeError(f"an allow-list is a list of names and patterns: [{patterns!r}]")
        if patterns is None or isinstance(patterns, AllowList) or not any(map(is_pattern, patterns)):
            return patterns
        return AllowList(patterns, self.names())

    def unmatched(self, names: Iterable[str]) -> "list[str]":
        """Return the names and patterns that match no tool: typos in an allow-list."""
        names = [*names]
        there = self.names() if any(map(is_pattern, names)) else ()  # called at server start, mostly without patterns
        return [name for name in names if not (AllowList((name,), there) if is_pattern(name) else name in self)]

    def has(self, name: str) -> bool:
        """Return whether a tool with this name is listed. Lazy tools are not loaded."""
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
    """The current tools.

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
        """Add a tool. Raises DefinitionError, and changes nothing, if the tool is invalid or its name is taken."""
        return self.add(accept(definition, self._builtins, self._internals))

    def add(self, spec: ToolSpec) -> ToolSpec:
        """Add a tool with a trusted schema, which is not checked or compiled before the first call."""
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
        """Return a snapshot of the tools, which is copied only after a change."""
        if (frozen := self._frozen) is not None:
            return frozen
        with self._lock:
            if self._frozen is None:
                self._frozen = Snapshot(self._tools.copy(), self._further, self.lazy)
            return self._frozen

    # Iterate over a snapshot: another thread may register tools at the same time.

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
        """Replace all tools at once, as a reload does. Readers see either the old or the new tools."""
        tools: dict[str, ToolSpec] = {}
        for spec in specs:
            if spec.name in tools:
                raise DuplicateToolError(duplicate(tools[spec.name], spec), tool=spec.name)
            tools[spec.name] = spec
        with self._lock:
            self._tools, self._further, self.lazy = tools, further, lazy
            self._frozen = None


def duplicate(first: ToolSpec, second: ToolSpec, what: str | None = None) -> str:
    """Return the error message for two tools, prompts or resources with the same name."""
    return (
        f"duplicate {what or f'tool name {first.name!r}'}: the first one stays ({_origin(first)}), "
        f"the second is refused ({_origin(second)}); rename one of them"
    )


def _origin(spec: ToolSpec) -> str:
    origin = f"{spec.defined_in or spec.source}: " if spec.defined_in or spec.source != "local" else ""
    described = spec.description.strip().partition("\n")[0]
    return f"{origin}“{described[:60]}”"


# Prompts and resources

_PLACE = lazy_pattern(r"\{(\w+)\}")


class SingleTool:
    """A ToolLookup with one tool: a version of a bundle's tool, or the tool of a prompt or resource."""

    def __init__(self, spec: ToolSpec) -> None:
        self.spec = spec

    def get(self, name: str) -> ToolSpec | None:
        return self.spec if name == self.spec.name else None

    def names(self) -> Collection[str]:
        return (self.spec.name,)


class Prompt(msgspec.Struct, frozen=True, kw_only=True):
    """A prompt for a model, which a user picks by name. The spec's tool returns the text, or messages."""

    name: str
    spec: ToolSpec
    title: str | None = None
    server_listing: Mapping[str, Any] | None = None  # if it is of an MCP server: its title, arguments, icons …


class Resource(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """A resource with a URI, or with a URI template such as `notes://{day}`.

    The spec's tool returns {"text": …}, {"blob": base64}, {"data": …} or, for MCP servers, {"contents": […]}.
    """

    uri: str
    name: str
    spec: ToolSpec
    mime_type: str | None = None
    server_listing: Mapping[str, Any] = NOTHING  # further fields from its MCP server: title, _meta …

    @cached_property
    def variables(self) -> tuple[str, ...]:
        """The names of the template's variables."""
        return tuple(_PLACE.findall(self.uri))

    def match(self, uri: str) -> Mapping[str, Any] | None:
        """Return the values of the template's variables in a URI; None if the URI does not match."""
        if not self.variables:
            return {} if uri == self.uri else None
        found = self._pattern.fullmatch(uri)
        if found is None:
            return None
        from urllib.parse import unquote  # not needed for listing tools

        values = {name: unquote(text) for name, text in found.groupdict().items()}
        # No encoded slashes and no `..`: a handler may use the value as part of a path.
        texts = values.values()
        return values if all(one.isprintable() and "/" not in one and one not in (".", "..") for one in texts) else None

    @cached_property
    def _pattern(self) -> "re.Pattern[str]":
        parts = _PLACE.split(self.uri)  # text, name, text, name, …, text
        pattern, last = re.escape(parts[0]), len(self.variables)
        for number, (name, text) in enumerate(zip(parts[1::2], parts[2::2], strict=True), 1):
            # With several variables in one segment, a value ends where the text between them begins. Otherwise the
            # number of possible matches would grow with the length of the URI.
            end = "" if number == last or "/" in text else re.escape(text[:1])
            pattern += f"(?P<{name}>[^/{end}]+){re.escape(text)}"
        return re.compile(pattern)


# Sources


class Catalogue(msgspec.Struct, frozen=True, kw_only=True):
    """The tools, prompts and resources of a source, and the mistakes found while loading it."""

    tools: tuple[ToolSpec, ...] = ()
    lazy: LazyPacks = NO_PACKS  # for sources with very many tools
    prompts: tuple[Prompt, ...] = ()
    resources: tuple[Resource, ...] = ()
    mistakes: tuple[Mistake, ...] = ()
