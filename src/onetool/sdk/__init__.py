"""What a pack's author imports: a tool is a function with type hints and a docstring, this is for the rest."""

from onetool.core.errors import BadArguments, ToolFailure
from onetool.sdk.batch import batch_execute, normalize_items
from onetool.sdk.calls import call_tool, get_pack
from onetool.sdk.clients import lazy_client
from onetool.sdk.context import get_config, get_secret, report_progress
from onetool.sdk.decorators import tool
from onetool.sdk.http import api_headers, safe_request
from onetool.sdk.requirements import check_deps, requires_cli, requires_lib
from onetool.sdk.spans import LogSpan

__all__ = [
    "BadArguments",
    "LogSpan",
    "ToolFailure",
    "api_headers",
    "batch_execute",
    "call_tool",
    "check_deps",
    "get_config",
    "get_pack",
    "get_secret",
    "lazy_client",
    "normalize_items",
    "report_progress",
    "requires_cli",
    "requires_lib",
    "safe_request",
    "tool",
]
