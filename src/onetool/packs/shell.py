"""The pack `shell`: the working directory. It starts no shell."""

import os

from onetool.sdk import ToolFailure, tool

pack = "shell"


@tool(read_only=True)
def pwd() -> str:
    """Return the current working directory as an absolute path.

    Returns:
        The path. Bytes that are not UTF-8 are escaped as \\xff.
    """
    try:
        return os.getcwdb().decode("utf-8", "backslashreplace")
    except OSError as error:
        raise ToolFailure(
            "The working directory is unknown: it was deleted, or a parent folder can't be read. "
            "Start again from a directory that exists.",
            reason="not_found",
        ) from error
