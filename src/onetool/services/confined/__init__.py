"""Reads and writes files and lists folders, but only below allowed roots.

Whether a path stays below its root is never decided by comparing text and then opening the text: between the two
somebody could swap a folder for a link. Text is compared first only to refuse early, before anything is touched; what
counts is how the path is opened. Linux resolves it in one step (openat2 with RESOLVE_BENEATH). Where that is missing,
or refuses a link that may be harmless, a walk takes the path name by name, each relative to the open folder before it
and without following links; it reads a link's text itself and walks on from there.

The rules for a path:
- relative: taken from the first root in which it exists;
- absolute: must begin with a root, as it is configured or with its links resolved, and is then opened from that root;
- `..` may go back inside the root, never above it, neither as written nor after following links;
- a link may lead anywhere inside its own root, by a relative or an absolute text;
- nothing is expanded or decoded (`~`, `$HOME`, `%2e`, `file:`), but for the escapes of names that are not UTF-8.

To write, only the folder is opened that way; from there on a name in that open folder counts, never a path. What is
there must be a regular file: a link is neither written through nor replaced, wherever it leads. A new file goes to the
first root in which its folder exists.

Names that are not UTF-8 are shown with `\\xff` for each byte that is not. It can be turned back: a name that holds the
same text literally is shown with its backslash as `\\x5c`. Only backslashes and bytes from 0x80 are ever escaped, so
that no escape can stand for a separator, a dot or a NUL.

`refusals` says why not, `words` says it to the caller who wanted to write, `paths` takes text apart, `opening` opens
what it means, `listing` lists what is open, `writing` writes there, `private` knows what nobody may touch, `closed`
what that is whatever the roots are, `roots` is what the rest of the program sees of it.
"""

from onetool.services.confined.listing import Entry
from onetool.services.confined.refusals import Refused
from onetool.services.confined.roots import Content, Place, Roots
from onetool.services.confined.words import why_not_written

__all__ = ["Content", "Entry", "Place", "Refused", "Roots", "why_not_written"]
