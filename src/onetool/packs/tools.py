"""The pack `tools`: `echo`, to test that calls work."""

from typing import Any

from onetool.sdk import tool

pack = "tools"


@tool(pure=True)
def echo(message: Any) -> Any:
    """Give the message back unchanged, to check that calling tools works.

    Args:
        message: Any JSON value: text, number, true, false, null, a list or an object.

    Returns:
        The same value.
    """
    return message
