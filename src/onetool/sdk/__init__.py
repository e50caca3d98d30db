"""The public SDK for authors of packs.

A tool is a function with type hints and a docstring; the SDK has everything else. Names are imported lazily: most packs
need two or three of them, and every command that lists tools imports packs.
"""

TYPE_CHECKING = False  # type checkers read this as true
if TYPE_CHECKING:
    from onetool.core.call import CannotAsk as CannotAsk
    from onetool.core.call import Declined as Declined
    from onetool.core.errors import BadArguments as BadArguments
    from onetool.core.errors import ToolFailure as ToolFailure
    from onetool.sdk.batch import batch_execute as batch_execute
    from onetool.sdk.batch import normalize_items as normalize_items
    from onetool.sdk.context import LogSpan as LogSpan
    from onetool.sdk.context import ask_model as ask_model
    from onetool.sdk.context import ask_person as ask_person
    from onetool.sdk.context import call_tool as call_tool
    from onetool.sdk.context import client_can as client_can
    from onetool.sdk.context import client_roots as client_roots
    from onetool.sdk.context import get_config as get_config
    from onetool.sdk.context import get_pack as get_pack
    from onetool.sdk.context import get_secret as get_secret
    from onetool.sdk.context import log_message as log_message
    from onetool.sdk.context import report_progress as report_progress
    from onetool.sdk.decorators import audio as audio
    from onetool.sdk.decorators import embedded as embedded
    from onetool.sdk.decorators import image as image
    from onetool.sdk.decorators import link as link
    from onetool.sdk.decorators import prompt as prompt
    from onetool.sdk.decorators import resource as resource
    from onetool.sdk.decorators import text as text
    from onetool.sdk.decorators import tool as tool
    from onetool.sdk.http import api_headers as api_headers
    from onetool.sdk.http import lazy_client as lazy_client
    from onetool.sdk.http import safe_request as safe_request
    from onetool.sdk.requirements import check_deps as check_deps
    from onetool.sdk.requirements import requires_cli as requires_cli
    from onetool.sdk.requirements import requires_lib as requires_lib

_HOMES = {
    "BadArguments": "onetool.core.errors",
    "CannotAsk": "onetool.core.call",
    "Declined": "onetool.core.call",
    "LogSpan": "onetool.sdk.context",
    "ToolFailure": "onetool.core.errors",
    "api_headers": "onetool.sdk.http",
    "ask_model": "onetool.sdk.context",
    "ask_person": "onetool.sdk.context",
    "audio": "onetool.sdk.decorators",
    "batch_execute": "onetool.sdk.batch",
    "call_tool": "onetool.sdk.context",
    "check_deps": "onetool.sdk.requirements",
    "client_can": "onetool.sdk.context",
    "client_roots": "onetool.sdk.context",
    "embedded": "onetool.sdk.decorators",
    "get_config": "onetool.sdk.context",
    "get_pack": "onetool.sdk.context",
    "get_secret": "onetool.sdk.context",
    "image": "onetool.sdk.decorators",
    "lazy_client": "onetool.sdk.http",
    "link": "onetool.sdk.decorators",
    "log_message": "onetool.sdk.context",
    "normalize_items": "onetool.sdk.batch",
    "prompt": "onetool.sdk.decorators",
    "report_progress": "onetool.sdk.context",
    "requires_cli": "onetool.sdk.requirements",
    "requires_lib": "onetool.sdk.requirements",
    "resource": "onetool.sdk.decorators",
    "safe_request": "onetool.sdk.http",
    "text": "onetool.sdk.decorators",
    "tool": "onetool.sdk.decorators",
}

__all__ = [*_HOMES]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'onetool.sdk' has no attribute {name!r}; it has {', '.join(_HOMES)}")
    from importlib import import_module

    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
