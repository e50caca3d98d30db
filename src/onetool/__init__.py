"""OneTool: define a tool once, use it from everywhere.

Importing this package loads only this file: each public name is imported from its module on first use, so that
`onetool --version` and users of a single class don't pay for the rest.
"""

TYPE_CHECKING = False  # type checkers read this as true; importing it from `typing` would dominate import time
if TYPE_CHECKING:
    from onetool._version import __version__ as __version__
    from onetool.app import App as App
    from onetool.core.call import ToolCall as ToolCall
    from onetool.core.call import ToolError as ToolError
    from onetool.core.call import ToolResult as ToolResult
    from onetool.core.executor import Executor as Executor
    from onetool.core.spec import ToolSpec as ToolSpec
    from onetool.formats import ProviderNames as ProviderNames
    from onetool.formats import provider_tools as provider_tools
    from onetool.interfaces.http.mount import asgi as asgi
    from onetool.services.search import SearchIndex as SearchIndex
    from onetool.sources.packs import Registry as Registry

_HOMES = {
    "App": "onetool.app",
    "Executor": "onetool.core.executor",
    "ProviderNames": "onetool.formats",
    "Registry": "onetool.sources.packs",
    "SearchIndex": "onetool.services.search",
    "ToolCall": "onetool.core.call",
    "ToolError": "onetool.core.call",
    "ToolResult": "onetool.core.call",
    "ToolSpec": "onetool.core.spec",
    "__version__": "onetool._version",
    "asgi": "onetool.interfaces.http.mount",
    "provider_tools": "onetool.formats",
}

__all__ = [*_HOMES]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'onetool' has no attribute {name!r}; it has {', '.join(_HOMES)}")
    from importlib import import_module

    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value  # the next access skips this function
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
