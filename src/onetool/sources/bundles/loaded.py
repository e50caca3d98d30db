"""`LoadedTool` is a tool of a bundle under its name, before it is a ToolSpec; `LazyPack` has those of one bundle."""

from collections.abc import Callable, ItemsView, Iterator, Mapping, ValuesView
from functools import lru_cache
from hashlib import sha256
from threading import RLock
from typing import Any
from weakref import ref

from msgspec import Struct

from onetool.core.spec import ToolSpec
from onetool.sources.bundles.store import KnownTool

Make = Callable[[KnownTool, str, str | None], ToolSpec]
"""A tool under a name; and why it must not be called, if so."""


class LoadedTool(Struct, gc=False, eq=False):
    """A tool of a bundle: the version that its name stands for, and the others. It is a `LazyTool`."""

    pack: str
    row: KnownTool
    others: tuple[KnownTool, ...]
    off: str | None
    make: Make
    function: Any = None  # what the row's function is; None where it has none, or that is gone
    made: "ref[ToolSpec] | None" = None

    @property
    def name(self) -> str:
        return f"{self.pack}.{self.row.own}"

    @property
    def enabled(self) -> bool:
        return self.off is None

    @property
    def kept_as(self) -> str:
        return self.row.id

    @property
    def digest(self) -> bytes:
        """A tool that stands for a function may say what the function says."""
        said = b"" if self.function is None else _said_by(self.function)
        return sha256(f"{self.name}\0".encode() + said + self.row.body).digest()

    def versions(self) -> tuple[KnownTool, ...]:
        return (self.row, *self.others)

    def spec(self) -> ToolSpec:
        found = None if self.made is None else self.made()
        if found is None:
            found = self.make(self.row, self.name, self.off)
            self.made = ref(found)
        return found


@lru_cache(256)
def _said_by(function: ToolSpec) -> bytes:
    """All of a function's texts that a tool may take over; each tool's own are in its JSON."""
    return sha256(repr((function.description, function.input_schema)).encode(errors="backslashreplace")).digest()


PackTools = Mapping[str, LoadedTool]

_loading = RLock()


class LazyPack(Mapping[str, LoadedTool]):
    """A bundle's tools, which are made of its rows when somebody first asks for one of them."""

    def __init__(self, size: int | None, shown: int | None, load: Callable[[], PackTools]) -> None:
        """There is at least one. `size` is how many, and `shown` how many of them are switched on: None if nobody has
        counted.
        """
        self._size = size
        self.shown_count = shown
        self._load: Callable[[], PackTools] | None = load
        self._tools: PackTools = {}

    def _loaded(self) -> PackTools:
        if self._load is not None:
            with _loading:  # a tool is one object, whoever asks
                if self._load is not None:
                    self._tools = self._load()
                    self._load = None
        return self._tools

    def __getitem__(self, own: str) -> LoadedTool:
        return self._loaded()[own]

    def __iter__(self) -> Iterator[str]:
        return iter(self._loaded())

    def __len__(self) -> int:
        return len(self._loaded()) if self._size is None else self._size

    def __bool__(self) -> bool:
        return True

    __eq__ = object.__eq__  # nobody is made to be compared
    __hash__ = object.__hash__  # pyright: ignore[reportAssignmentType] - Mapping has none

    # As quick as those of a dict: every call looks one up, and a search goes through all of them.

    def get(self, own: str, default: Any = None, /) -> Any:
        return self._loaded().get(own, default)

    def items(self) -> ItemsView[str, LoadedTool]:
        return self._loaded().items()

    def values(self) -> ValuesView[LoadedTool]:
        return self._loaded().values()
