"""The pack `tools`: `echo`, for testing calls."""

from typing import Any

from onetool.sdk import tool

pack = "tools"


@tool(pure=True)
def echo(message: Any) -> Any:
    """Return the message unchanged, for testing that calls work.

    Args:
        message: Any JSON value: text, number, true, false, null, a list or an object.

    Returns:
        The same value.
    """
    return message
