"""Why a file was not written, in words for whoever wanted it."""

from collections.abc import Sequence

from onetool.services.confined.refusals import Refused

WORDS = {
    "bad_path": "{path} can't be a path: {detail}.",
    "busy": "{path} is being written by others, who did not let go of it in time. Try again.",
    "closed": "{path} is closed to tools, whatever the allowed folders are: keys and the system's own are kept there.",
    "denied": "{path} is outside of the folders that may be written to ({allowed}).",
    "is_a_directory": "{path} is a directory, not a file.",
    "is_a_link": "{path} is a symbolic link, and those are not written through. Use the path of the file itself.",
    "link_loop": "{path} leads through too many symbolic links, or round in a circle (ELOOP).",
    "name_too_long": "{path} is too long for a path, or has a name that is (ENAMETOOLONG).",
    "no_permission": "{path} can't be written: the permissions don't let this process do it.",
    "not_a_directory": "{path} goes on below a file.",
    "not_a_file": "{path} is not a regular file: devices, pipes and sockets can't be written.",
    "not_found": "{path} can't be made, as its folder does not exist.",
    "private": "{path} is OneTool's own and can't be written by tools.",
    "root_missing": "The allowed folder {detail!r} can't be opened.",
    "root_outside": "The folder {detail!r} lies outside of the project whose config allows it.",
}
OTHERWISE = "{path} could not be written: {detail}."


def why_not_written(refused: Refused, path: str, allowed: Sequence[str] = ()) -> str:
    """`allowed` are the folders to name when the path is outside of them, as Roots.paths tells."""
    return WORDS.get(refused.reason, OTHERWISE).format(
        path=repr(path if len(path) <= 300 else f"{path[:300]}…"),
        detail=refused.detail or "the system gives an error",
        allowed=", ".join(map(repr, allowed)) or "none",
    )
