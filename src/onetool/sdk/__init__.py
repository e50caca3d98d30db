"""What a pack's author imports: a tool is a function with type hints and a docstring, this is for the rest."""

from onetool.core.errors import BadArguments, ToolFailure
from onetool.sdk.calls import call_tool, get_pack
from onetool.sdk.context import get_config, get_secret, report_progress
from onetool.sdk.decorators import tool

__all__ = [
    "BadArguments",
    "ToolFailure",
    "call_tool",
    "get_config",
    "get_pack",
    "get_secret",
    "report_progress",
    "tool",
]
