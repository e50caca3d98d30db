"""From code as it was written to what is fed to the sandbox."""

from collections.abc import Collection, Mapping

import msgspec

from onetool.script.idioms import idioms
from onetool.script.imports import Imports
from onetool.script.modules import prelude
from onetool.script.names import Names
from onetool.script.origins import Watched, watched
from onetool.script.places import Span, edited
from onetool.script.scan import Scan


class Prepared(msgspec.Struct, frozen=True, kw_only=True):
    """What to feed: first the prelude, if there is one, then the code, with these names bound."""

    code: str
    prelude: str = ""
    words: Mapping[str, str] = {}  # each name to bind, and the pack or function that it is bound to
    futures: Collection[Span] = ()  # where the calls stand that are answered with a future
    watched: Watched | None = None  # the code in a form that is fed instead, if the sandbox takes it


def prepare(scan: Scan, names: Names) -> Prepared:
    """The code, ready to be fed. Code that only the sandbox can parse goes as it is: it asks for each name it meets."""
    if scan.tree is None:
        return Prepared(code=scan.code)
    imports = Imports(scan, names)
    edits = [*imports.edits, *idioms(scan)]
    final = Scan(edited(scan.code, edits)) if edits else scan
    first = prelude(imports.library) if imports.library else ""
    return Prepared(
        code=final.code,
        prelude=first + "".join(imports.native),
        words=imports.words,
        futures=final.futures,
        watched=watched(final),
    )
