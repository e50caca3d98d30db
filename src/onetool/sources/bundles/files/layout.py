"""Which file of the folder is what, and how new ones are called. Paths are texts relative to the folder, with slashes.

Names begin with the slug. One that is long, or that some file system could take for another (case, Unicode's forms), is
cut and gets a hash behind a `~`, which no slug and no version can have.
"""

import os
import re
from hashlib import sha256

BUNDLE = "bundle.json"
TOOLS = "tools"
OVERLAY = "builtin.json"
STATE = ".state"
INDEX = f"{STATE}/index.db"
USAGE = f"{STATE}/usage.db"
KEY = f"{STATE}/page.key"
DRAFT = ".onetool-"  # how names of what is not finished begin

LONGEST = 120  # bytes of a name, without its hash and its end; file systems take 255 in all
_PLAIN = re.compile(r"[a-z0-9.@-]+")


def bundle_folders(slug: str, id: str) -> tuple[str, str]:
    """Names for a new bundle: the usual one, and one for when that is taken."""
    readable = cut(slug, LONGEST)
    return f"{readable}-{id[-12:]}", f"{readable}-{id}"


def bundle_file(folder: str) -> str:
    return f"{folder}/{BUNDLE}"


def tools_of(folder: str) -> str:
    return f"{folder}/{TOOLS}"


def tool_file(folder: str, slug: str, version: str) -> str:
    return f"{folder}/{TOOLS}/{tool_name(slug, version)}"


def tool_name(slug: str, version: str) -> str:
    name = f"{slug}@{version}"
    if len(name) > LONGEST or not _PLAIN.fullmatch(name):
        name = f"{cut(name, LONGEST)}~{sha256(name.encode()).hexdigest()[:16]}"
    return f"{name}.json"


def new_draft() -> str:
    return f"{DRAFT}{os.urandom(8).hex()}"


def is_tool(path: str) -> bool:
    return path.count("/") == 2


def folder_of(path: str) -> str:
    """The bundle's folder that a file is in."""
    return path.partition("/")[0]


def parent(path: str) -> str:
    return path.rpartition("/")[0] or "."


def cut(text: str, most: int) -> str:
    """So many bytes of it at the most, between two characters."""
    return text.encode()[:most].decode(errors="ignore")
