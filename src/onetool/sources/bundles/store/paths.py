"""The paths of bundles and tools: relative to the folder of bundles, with slashes, and equal in a database.

    weather-b302099a8057/bundle.json            the original slug and the end of the id
    weather-b302099a8057/tools/forecast@1.json  one file per tool
    builtin.json                                settings of built-in and derived bundles and tools

The content of a file counts, not its name. A name that is too long, or that some file system could confuse with another
(case, Unicode normalization), is cut and gets a hash after a `~`, which slugs and versions can't contain.
"""

import re
from hashlib import sha256

BUNDLE = "bundle.json"
TOOLS = "tools"
OVERLAY = "builtin.json"
STATE = ".state"  # local to the machine, and not in git

MAX_FILE_BYTES = 8 * 1024 * 1024
MAX_FILE_NAME = 120  # bytes of a name, without hash and suffix; file systems allow 255 in all
_PLAIN = re.compile(r"[a-z0-9.@-]+")


def bundle_folders(slug: str, id: str) -> tuple[str, str]:
    """Return the usual folder name for a new bundle, and an alternative if that is taken."""
    readable = cut(slug, MAX_FILE_NAME)
    return f"{readable}-{id[-12:]}", f"{readable}-{id}"


def bundle_file(folder: str) -> str:
    return f"{folder}/{BUNDLE}"


def tools_of(folder: str) -> str:
    return f"{folder}/{TOOLS}"


def tool_file(folder: str, slug: str, version: str) -> str:
    return f"{folder}/{TOOLS}/{tool_name(slug, version)}"


def tool_name(slug: str, version: str) -> str:
    name = f"{slug}@{version}"
    if len(name) > MAX_FILE_NAME or not _PLAIN.fullmatch(name):
        name = f"{cut(name, MAX_FILE_NAME)}~{sha256(name.encode()).hexdigest()[:16]}"
    return f"{name}.json"


def is_tool(path: str) -> bool:
    return path.count("/") == 2


def folder_of(path: str) -> str:
    """Return the first folder of a path; empty for a file at the top."""
    folder, slash, _ = path.partition("/")
    return folder if slash else ""


def parent(path: str) -> str:
    return path.rpartition("/")[0] or "."


def cut(text: str, limit: int) -> str:
    """Return at most `limit` bytes of a string, without splitting a character."""
    return text.encode()[:limit].decode(errors="ignore")
