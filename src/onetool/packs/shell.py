"""The pack `shell`: the working directory. It starts no shell."""

import os

from onetool.sdk import ToolFailure, tool

pack = "shell"


@tool(read_only=True)
def pwd() -> str:
    """Tell the current working directory, as an absolute path.

    Returns:
        The path. Bytes in it that are not UTF-8 stand as \\xff.
    """
    try:
        return os.getcwdb().decode("utf-8", "backslashreplace")
    except OSError as error:
        raise ToolFailure(
            "The working directory can't be told: it was deleted, or a folder above it may not be read. "
            "Start again from a directory that exists.",
            reason="not_found",
        ) from error
