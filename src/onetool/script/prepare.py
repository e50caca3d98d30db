"""From code as it was written to code as it is fed: imports of packs and of our library become what they mean here.

Edits are made at places that the tree gives, never by searching the text, and lines keep their numbers.
"""

from collections.abc import Collection, Iterable, Mapping

import msgspec

from onetool.script.awaits import Span
from onetool.script.modules import AVAILABLE, Edit, imports, prelude, which
from onetool.script.names import Names
from onetool.script.scan import Scan

NATIVE = frozenset(
    {"asyncio", "base64", "binascii", "bisect", "collections", "copy", "csv", "dataclasses", "datetime", "decimal",
     "functools", "hashlib", "itertools", "json", "math", "os", "pathlib", "posixpath", "random", "re", "sys", "time",
     "tomllib", "typing", "unicodedata"}
)  # fmt: skip
"""The modules that the sandbox has itself."""
MODULES = NATIVE | AVAILABLE


class Prepared(msgspec.Struct, frozen=True, kw_only=True):
    """What to feed: first the prelude, if there is one, then the code with these packs and functions bound."""

    code: str
    prelude: str
    words: Mapping[str, str]  # each name to bind, and the pack or function that it is bound to
    futures: Collection[Span]


def prepare(scan: Scan, names: Names) -> Prepared:
    """The code, ready to be fed."""
    if scan.tree is None:  # the sandbox asks for every name that it meets
        return Prepared(code=scan.code, prelude="", words={}, futures=())
    words = {word: word for word in scan.used if word in names and word not in scan.bound}
    edits = imports(scan.tree, scan.code)
    final = Scan(_edited(scan.code, edits)) if edits else scan
    return Prepared(code=final.code, prelude=prelude(which(scan.tree)), words=words, futures=final.futures)


def _edited(code: str, edits: Iterable[Edit]) -> str:
    data = code.encode()
    for edit in sorted(edits, reverse=True):
        data = data[: edit.start] + edit.text.encode() + data[edit.end :]
    return data.decode()
