"""The public `Registry`: a ToolRegistry whose definitions may name functions of the built-in packs as handlers.

It stands above the core, which can't import the packs.
"""

from collections import ChainMap

from onetool.core.definition import Handlers
from onetool.core.registry import ToolRegistry as CoreRegistry
from onetool.sources.packs import BuiltinFunctions


class Registry(CoreRegistry):
    """Names to tools. `builtins` and `internals` are further handlers that definitions may name."""

    __slots__ = ()

    def __init__(self, *, builtins: Handlers | None = None, internals: Handlers | None = None) -> None:
        super().__init__(builtins=ChainMap(dict(builtins or {}), BuiltinFunctions()), internals=internals)  # pyright: ignore[reportArgumentType]
