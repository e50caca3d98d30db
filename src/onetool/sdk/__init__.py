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

_MODULES = {
    "onetool.core.call": "CannotAsk Declined",
    "onetool.core.errors": "BadArguments ToolFailure",
    "onetool.sdk.batch": "batch_execute normalize_items",
    "onetool.sdk.context": "LogSpan ask_model ask_person call_tool client_can "
    "client_roots get_config get_pack get_secret log_message report_progress",
    "onetool.sdk.decorators": "audio embedded image link prompt resource text tool",
    "onetool.sdk.http": "api_headers lazy_client safe_request",
    "onetool.sdk.requirements": "check_deps requires_cli requires_lib",
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names.split()}

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
