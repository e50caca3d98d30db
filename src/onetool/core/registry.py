"""Registry: names to tools, in the order of registration. Refuses what is wrong; hands out frozen snapshots."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from threading import Lock
from typing import Any

from onetool.core.definition import Handlers, accept
from onetool.core.errors import DuplicateToolError
from onetool.core.principal import AllowList, is_pattern
from onetool.core.spec import ToolSpec

Further = Callable[[str], ToolSpec | None]
"""Finds tools that are in no list but can be called by their full name: `bundle.tool@version`."""


class Snapshot:
    """The tools at one moment. Nothing that happens to the registry afterwards changes it."""

    __slots__ = ("_further", "_packs", "_tools")

    def __init__(self, tools: dict[str, ToolSpec], further: Further | None = None) -> None:
        self._tools = tools
        self._further = further
        self._packs: dict[str, dict[str, ToolSpec]] | None = None

    def get(self, name: str) -> ToolSpec | None:
        """The tool of that name, or None: the caller handles a missing tool."""
        found = self._tools.get(name)
        return found if found is not None or self._further is None else self._further(name)

    def list(self, allowed: Iterable[str] | None = None) -> list[ToolSpec]:
        """All tools in the order of registration; with an allow-list exactly those that it names."""
        if allowed is None:
            return list(self._tools.values())
        if isinstance(allowed, str):
            raise TypeError(f"allowed is a list of names: [{allowed!r}]")
        names = dict.fromkeys(allowed)
        listed = [spec for name, spec in self._tools.items() if name in names]
        further = (self.get(name) for name in names if name not in self._tools)
        return [*listed, *(spec for spec in further if spec is not None)]

    def names(self) -> Collection[str]:
        return self._tools.keys()

    def packs(self) -> Mapping[str, Mapping[str, ToolSpec]]:
        """Each pack's tools by their names inside of it. Computed once."""
        if self._packs is None:
            packs: dict[str, dict[str, ToolSpec]] = {}
            for spec in self._tools.values():
                packs.setdefault(spec.pack, {})[spec.name.removeprefix(f"{spec.pack}.")] = spec
            self._packs = packs
        return self._packs

    def allowing(self, patterns: Collection[str] | None) -> Collection[str] | None:
        """The allow-list that names and patterns (`web.*`) are for the tools that there are now."""
        if isinstance(patterns, str):
            raise TypeError(f"an allow-list is a list of names and patterns: [{patterns!r}]")
        if patterns is None or isinstance(patterns, AllowList) or not any(map(is_pattern, patterns)):
            return patterns
        return AllowList(patterns, self.names())

    def unmatched(self, names: Iterable[str]) -> "list[str]":
        """The names that no tool has, and the patterns that none fits: typos in an allow-list."""
        there = self.names()
        return [name for name in names if not (AllowList((name,), there) if is_pattern(name) else name in self)]

    def __len__(self) -> int:
        return len(self._tools)

    def __contains__(self, name: object) -> bool:
        return name in self._tools or (isinstance(name, str) and self.get(name) is not None)

    def __iter__(self) -> Iterator[ToolSpec]:
        return iter(self._tools.values())

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {len(self)} tools>"


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
            if first is not None:
                raise DuplicateToolError(duplicate(first, spec), tool=spec.name)
            self._tools[spec.name] = spec
            self._frozen = None
        return spec

    def snapshot(self) -> Snapshot:
        """A snapshot of the tools. Copied after a change, else shared."""
        with self._lock:
            if self._frozen is None:
                self._frozen = Snapshot(self._tools.copy(), self._further)
            return self._frozen

    # Another thread may register while somebody reads: what walks over all tools walks over a snapshot.

    def list(self, allowed: Iterable[str] | None = None) -> list[ToolSpec]:
        return self.snapshot().list(allowed)

    def names(self) -> Collection[str]:
        return self.snapshot().names()

    def packs(self) -> Mapping[str, Mapping[str, ToolSpec]]:
        return self.snapshot().packs()

    def __iter__(self) -> Iterator[ToolSpec]:
        return iter(self.snapshot())

    def replace(self, specs: Iterable[ToolSpec], further: Further | None = None) -> None:
        """Swap all tools at once, as a reload does: a reader sees the old set or the new one, never a mixture."""
        tools: dict[str, ToolSpec] = {}
        for spec in specs:
            if spec.name in tools:
                raise DuplicateToolError(duplicate(tools[spec.name], spec), tool=spec.name)
            tools[spec.name] = spec
        with self._lock:
            self._tools, self._further = tools, further
            self._frozen = None


def duplicate(first: ToolSpec, second: ToolSpec, what: str | None = None) -> str:
    """The error for two tools, or other things, with one name."""
    return (
        f"duplicate {what or f'tool name {first.name!r}'}: the first one stays ({_shown(first)}), "
        f"the second is refused ({_shown(second)}); rename one of them"
    )


def _shown(spec: ToolSpec) -> str:
    origin = f"{spec.defined_in or spec.source}: " if spec.defined_in or spec.source != "local" else ""
    described = spec.description.strip().partition("\n")[0]
    return f"{origin}“{described[:60]}”"
