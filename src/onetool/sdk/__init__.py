"""What a pack's author imports. A tool is a function with type hints and a docstring; this is for what those can't say."""

from onetool.core.errors import ToolFailure
from onetool.sdk.context import get_config, get_secret
from onetool.sdk.decorators import tool

__all__ = ["ToolFailure", "get_config", "get_secret", "tool"]
