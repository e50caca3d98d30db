"""Messages by topic, each a YAML document at the end of the file that its topic belongs to.

    ---
    time: "2026-05-04T09:08:07.654Z"
    topic: "notes:today"
    message: "Remember to review PR #123"

Files lie below the allowed folders only (`services/file_access`), and any number of processes may add to one of them.
"""

import os
import re
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from json.encoder import encode_basestring
from pathlib import Path
from time import time

from onetool.core.errors import BadArguments, ToolFailure
from onetool.core.text import utc_text_ms
from onetool.services.file_access import PathRefusedError, Roots, why_not_written
from onetool.services.file_access.opening import path_shown

LONGEST_TOPIC = 200  # characters
LONGEST_MESSAGE = 64 * 1024  # bytes

NO_MATCH = "SKIP: no matching topic"

# What a JSON text may hold as it is, but a YAML text may not, or takes for the end of a line.
_UNPRINTABLE = re.compile(r"[\x7f-\x9f\u2028\u2029\ud800-\udfff\ufeff\ufffe\uffff]")
_ONLY_QUOTED = re.compile(rf"[\0-\x08\x0b-\x1f]|{_UNPRINTABLE.pattern}")


class Topics:
    """Patterns, each with the file for the topics it matches. The first that matches counts.

    `roots` are the folders that files may lie in, `private` what is never written to, though it lies there. `own` is
    the one folder of OneTool's own that a file may lie in: beside the config that names it. `within` is where roots
    may lie.
    """

    def __init__(
        self,
        topics: Iterable[tuple[str, Path]],
        roots: Sequence[str],
        private: Iterable[str] = (),
        *,
        within: Sequence[str] | None = None,
        own: str | None = None,
    ) -> None:
        self._topics = tuple(topics)
        self._folders = tuple(roots)
        self._private = tuple(private)
        self._within, self._own = within, own

    def publish(self, topic: str, message: str) -> str:
        """Add the message to its topic's file; says which, or that there is none."""
        _check(topic, message)
        file = next((file for pattern, file in self._topics if fnmatchcase(topic, pattern)), None)
        if file is None:
            return NO_MATCH
        self._append(path_shown(os.fsencode(file)), document(topic, message))
        return f"OK: {topic} -> {path_shown(os.fsencode(file.name))}"

    def _append(self, path: str, data: bytes) -> None:
        roots: Roots | None = None
        try:
            roots = Roots(self._folders, self._private, within=self._within, own=self._own)
            try:
                roots.append(path, data, on_new_line=True)
            except PathRefusedError as refused:
                if refused.reason != "not_found":
                    raise
                roots.make_folders(path)
                roots.append(path, data, on_new_line=True)
        except PathRefusedError as refused:
            hint = (
                "the file of a topic is set under `topics` in the config; it must lie beside the config or in fs.roots"
            )
            why = why_not_written(refused, path, roots.paths if roots else ())
            raise ToolFailure(f"The message is not kept: {why}", reason=refused.reason, hints=[hint]) from None


def document(topic: str, message: str) -> bytes:
    """One YAML document. Every YAML reader gets the texts back as they were given."""
    now = utc_text_ms(time())
    text = f'---\ntime: "{now}"\ntopic: {_quoted(topic)}\nmessage: {_literal(message) or _quoted(message)}\n'
    return text.encode()


def _quoted(text: str) -> str:
    """In double quotes: a JSON string is a YAML string, but for a few characters."""
    return _UNPRINTABLE.sub(lambda found: f"\\u{ord(found[0]):04x}", encode_basestring(text))


def _literal(text: str) -> str | None:
    """Line by line below a mark, as people read it; None for a text of one line, or one that has to be quoted.

    A text that begins with a space or a break, or ends with several breaks, would need more marks than are easily read.
    """
    if "\n" not in text or text[0] in " \t\n" or text.endswith("\n\n") or _ONLY_QUOTED.search(text):
        return None
    mark = "|" if text.endswith("\n") else "|-"
    return "\n".join([mark, *(f"  {line}" if line else "" for line in text.removesuffix("\n").split("\n"))])


def _check(topic: str, message: str) -> None:
    if len(topic) > LONGEST_TOPIC:
        raise BadArguments(
            f"The topic has {len(topic):,} characters; at most {LONGEST_TOPIC} are allowed.",
            reason="too_large",
            hints=["a topic is a short name, like notes:today"],
        )
    size = len(message.encode(errors="surrogatepass"))
    if size > LONGEST_MESSAGE:
        raise BadArguments(
            f"The message has {size:,} bytes; at most {LONGEST_MESSAGE:,} (64 KB) are allowed.",
            reason="too_large",
            hints=["shorten it, or send it in parts"],
        )
