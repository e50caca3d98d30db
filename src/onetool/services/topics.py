"""Messages by topic, each appended to the file of its topic as a YAML document.

    ---
    time: "2026-05-04T09:08:07.654Z"
    topic: "notes:today"
    message: "Remember to review PR #123"

A file is either in the folder of the config, under a name that nothing else reads, or below the allowed folders
(`services/file_access`). A file with anything but such documents is not changed: otherwise callers could write to files
of other programs. Any number of processes may append to one file.
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

MAX_TOPIC_LENGTH = 200  # characters
MAX_MESSAGE_BYTES = 64 * 1024  # bytes

NO_MATCH = "SKIP: no matching topic"

# Allowed in JSON strings, but not in YAML, or line breaks there.
_UNPRINTABLE = re.compile(r"[\x7f-\x9f\u2028\u2029\ud800-\udfff\ufeff\ufffe\uffff]")
_ONLY_QUOTED = re.compile(rf"[\0-\x08\x0b-\x1f]|{_UNPRINTABLE.pattern}")


class Topics:
    """Patterns of topics, each with a file. The first match is used.

    Files must be below `roots`, or directly in `beside`, the folder of the config. `private` files are never written.
    `within` are the folders that must contain the roots.
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
        self._checked: dict[tuple[int, int], int] = {}  # (device, inode) of a file -> checked size

    def publish(self, topic: str, message: str) -> str:
        """Append the message to the file of its topic. Return the file's name, or a note that there is none."""
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
                hints=["shorten the message, or send it in parts"],
            )
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
                "the file of a topic is set under `topics` in the config; it must be in the same folder as the config, "
                "or below fs.roots"
            )
            why = why_not_written(refused, path, roots.paths if roots else ())
            raise ToolFailure(f"The message was not stored: {why}", reason=refused.reason, hints=[hint]) from None

    def _refuse_other_content(self, file: int, status: os.stat_result) -> None:
        """Refuse a file with anything but documents of topics. Each part of the file is checked once."""
        at, size = (status.st_dev, status.st_ino), status.st_size
        known = self._checked.get(at, 0)
        # The second check is for a file that was replaced since the first part was checked.
        if not _holds_documents(file, known, size) and not _holds_documents(file, 0, size):
            raise PathRefusedError("other_content")
        self._checked[at] = size


_DOCUMENT = re.compile(rb"\n*(?:---[ \r]*\n)?time: .*\ntopic: .*\nmessage: .*(?:\n|\Z)(?: .*(?:\n|\Z)|\r?\n)*+")
_CHUNK = 1 << 20  # bytes; longer than the longest document


def _holds_documents(file: int, start: int, end: int) -> bool:
    """Return whether this part of an open file consists of whole documents."""
    while start < end:
        chunk, at = os.pread(file, min(_CHUNK, end - start), start), 0
        is_last = start + len(chunk) >= end
        while (found := _DOCUMENT.match(chunk, at)) and (is_last or found.end() < len(chunk)):
            at = found.end()
        if at == 0 or (is_last and at < len(chunk)):
            return False
        start += at
    return start == end


def document(topic: str, message: str) -> bytes:
    """Return one YAML document, which every YAML reader parses to the same strings."""
    now = utc_text_ms(time())
    text = f'---\ntime: "{now}"\ntopic: {_quoted(topic)}\nmessage: {_literal(message) or _quoted(message)}\n'
    return text.encode()


def _quoted(text: str) -> str:
    """Return the text in double quotes: a JSON string is a YAML string, except for a few characters."""
    return _UNPRINTABLE.sub(lambda found: f"\\u{ord(found[0]):04x}", encode_basestring(text))


def _literal(text: str) -> str | None:
    """Return a readable YAML block of lines; None for a single line, or a string that must be quoted.

    A string that begins with a space or line break, or ends with several, would need indicators that are hard to read.
    """
    if "\n" not in text or text[0] in " \t\n" or text.endswith("\n\n") or _ONLY_QUOTED.search(text):
        return None
    mark = "|" if text.endswith("\n") else "|-"
    return "\n".join([mark, *(f"  {line}" if line else "" for line in text.removesuffix("\n").split("\n"))])
