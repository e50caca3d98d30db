"""Messages by topic, each a YAML document at the end of the file that its topic belongs to.

    ---
    time: "2026-05-04T09:08:07.654Z"
    topic: "notes:today"
    message: "Remember to review PR #123"

A file lies directly beside the config, under a name that nothing reads, or below the allowed folders
(`services/file_access`). A file that holds anything but such documents stays as it is: whatever reads it would read
what callers write. Any number of processes may add to one file.
"""

import os
import re
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from json.encoder import encode_basestring
from pathlib import Path
from time import time

from onetool.core.errors import BadArguments, ToolFailure
from onetool.core.os_files import read_at
from onetool.core.text import utc_text_ms
from onetool.services.file_access import PathRefusedError, Roots, why_not_written
from onetool.services.file_access.opening import path_shown

MAX_TOPIC_LENGTH = 200  # characters
MAX_MESSAGE_BYTES = 64 * 1024  # bytes

NO_MATCH = "SKIP: no matching topic"

# What a JSON text may hold as it is, but a YAML text may not, or takes for the end of a line.
_UNPRINTABLE = re.compile(r"[\x7f-\x9f\u2028\u2029\ud800-\udfff\ufeff\ufffe\uffff]")
_ONLY_QUOTED = re.compile(rf"[\0-\x08\x0b-\x1f]|{_UNPRINTABLE.pattern}")


class Topics:
    """Patterns, each with the file for the topics it matches. The first that matches counts.

    `roots` are the folders that files may lie below, `private` what is never written to, though it lies there.
    `beside` is the folder of the config, which files may lie in directly. `within` is where roots may lie.
    """

    def __init__(
        self,
        topics: Iterable[tuple[str, Path]],
        roots: Sequence[str],
        private: Iterable[str] = (),
        *,
        within: Sequence[str] | None = None,
        beside: Path | None = None,
    ) -> None:
        self._topics = tuple(topics)
        self._folders = tuple(roots)
        self._private = tuple(private)
        self._within, self._beside = within, beside
        self._checked: dict[tuple[int, int], int] = {}  # device and inode of a file: how much of it was looked at

    def publish(self, topic: str, message: str) -> str:
        """Add the message to its topic's file; says which, or that there is none."""
        _check(topic, message)
        file = next((file for pattern, file in self._topics if fnmatchcase(topic, pattern)), None)
        if file is None:
            return NO_MATCH
        self._append(file, document(topic, message))
        return f"OK: {topic} -> {path_shown(os.fsencode(file.name))}"

    def _append(self, file: Path, data: bytes) -> None:
        roots: Roots | None = None
        path = path_shown(os.fsencode(file))
        try:
            beside = self._beside
            if beside is not None and os.path.realpath(file.parent) == os.path.realpath(beside):
                path = path_shown(os.fsencode(beside / file.name))
                roots = Roots([str(beside)], self._private, own=str(beside))
            else:
                roots = Roots(self._folders, self._private, within=self._within, enters_hidden=False)
            try:
                roots.append(path, data, on_new_line=True, check=self._refuse_other_content)
            except PathRefusedError as refused:
                if refused.reason != "not_found":
                    raise
                roots.make_folders(path)
                roots.append(path, data, on_new_line=True, check=self._refuse_other_content)
        except PathRefusedError as refused:
            hint = (
                "the file of a topic is set under `topics` in the config; it must lie directly beside the config, or "
                "below fs.roots"
            )
            why = why_not_written(refused, path, roots.paths if roots else ())
            raise ToolFailure(f"The message is not kept: {why}", reason=refused.reason, hints=[hint]) from None

    def _refuse_other_content(self, file: int, status: os.stat_result) -> None:
        """Refuse a file that holds anything but documents of topics. Each part of it is looked at once."""
        at, size = (status.st_dev, status.st_ino), status.st_size
        known = self._checked.get(at, 0)
        if not _holds_documents(file, known, size) and not _holds_documents(file, 0, size):  # another file by now
            raise PathRefusedError("other_content")
        self._checked[at] = size


_DOCUMENT = re.compile(rb"\n*(?:---[ \r]*\n)?time: .*\ntopic: .*\nmessage: .*(?:\n|\Z)(?: .*(?:\n|\Z)|\r?\n)*+")
_CHUNK = 1 << 20  # bytes; longer than the longest document


def _holds_documents(file: int, start: int, end: int) -> bool:
    """Return whether this part of an open file is made of whole documents."""
    while start < end:
        chunk, at = read_at(file, min(_CHUNK, end - start), start), 0
        is_last = start + len(chunk) >= end
        while (found := _DOCUMENT.match(chunk, at)) and (is_last or found.end() < len(chunk)):
            at = found.end()
        if at == 0 or (is_last and at < len(chunk)):
            return False
        start += at
    return start == end


def document(topic: str, message: str) -> bytes:
    """Return one YAML document. Every YAML reader gets the texts back as they were given."""
    now = utc_text_ms(time())
    text = f'---\ntime: "{now}"\ntopic: {_quoted(topic)}\nmessage: {_literal(message) or _quoted(message)}\n'
    return text.encode()


def _quoted(text: str) -> str:
    """Return the text in double quotes: a JSON string is a YAML string, but for a few characters."""
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
    if len(topic) > MAX_TOPIC_LENGTH:
        raise BadArguments(
            f"The topic has {len(topic):,} characters; at most {MAX_TOPIC_LENGTH} are allowed.",
            reason="too_large",
            hints=["a topic is a short name, like notes:today"],
        )
    size = len(message.encode(errors="surrogatepass"))
    if size > MAX_MESSAGE_BYTES:
        raise BadArguments(
            f"The message has {size:,} bytes; at most {MAX_MESSAGE_BYTES:,} (64 KB) are allowed.",
            reason="too_large",
            hints=["shorten it, or send it in parts"],
        )
