"""The public `Registry`: the core's, with the built-in packs' functions known by name.

A definition may name `fs.read_file` as its builtin handler without registering anything first. The core can't know
the packs, which stand above it; hence this room of a few lines.
"""

from collections import ChainMap

from onetool.core.implementation import Handlers
from onetool.core.registry import Registry as CoreRegistry
from onetool.sources.packs import BuiltinFunctions


class Registry(CoreRegistry):
    """Names to tools. `builtins` and `internals` are further handlers that definitions may name."""

    __slots__ = ()

    def __init__(self, *, builtins: Handlers | None = None, internals: Handlers | None = None) -> None:
        super().__init__(builtins=ChainMap(dict(builtins or {}), BuiltinFunctions()), internals=internals)  # pyright: ignore[reportArgumentType]
