"""The log of a server: its standard error and our notes, in memory and in a small file.

`onetool servers logs NAME` reads the file, even while another process runs the server. Secrets are masked before text
is stored.
"""

import logging
import os
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Lock
from time import strftime
from typing import Any

from onetool.core.os_files import private
from onetool.core.redaction import mask_values
from onetool.core.state_folders import make_state_folder

log = logging.getLogger("onetool.servers")
MAX_LINE = 2_000  # characters
MAX_STRAY = 200  # characters of a stray line on standard output
MAX_BYTES = 256 * 1024  # of the file before it is rotated; one old file is kept
IN_MEMORY = 50  # lines

Redact = Callable[[Any], Any]
"""Return text or data with secrets masked."""


class ServerLog:
    """The log of one server. `note` adds our own lines, `write_stderr` adds the server's. Thread-safe."""

    def __init__(self, name: str, file: Path, redact: Redact) -> None:
        self.name = name
        self._file = file
        self._redact = redact
        self._lock = Lock()
        self._rest = b""
        self._size: int | None = None
        self.masked: tuple[str, ...] = ()  # values that are masked only in this log
        self.words: deque[str] = deque(maxlen=IN_MEMORY)  # the server's lines since its last start

    def note(self, text: str) -> None:
        log.info("%s: %s", self.name, text := self._clean(text[: 4 * MAX_LINE])[:MAX_LINE])
        self._append([f"-- {text}"])

    def write_stderr(self, data: bytes) -> None:
        """Add a chunk of the server's standard error, which may end within a line."""
        *lines, rest = (self._rest + data).split(b"\n")
        if len(rest) > MAX_LINE:
            lines, rest = [*lines, rest], b""
        self._rest = rest
        self._add_lines(lines)

    def end_stderr(self) -> None:
        """Add the last line, which may be incomplete, when standard error has ended."""
        rest, self._rest = self._rest, b""
        self._add_lines([rest])

    def write_stray(self, line: bytes) -> None:
        """Add a line of the server's standard output that isn't a message."""
        text = f"(on standard output) {self._masked(line, MAX_STRAY)}"
        self.words.append(text)
        self._append([text])

    def _add_lines(self, lines: list[bytes]) -> None:
        texts = [self._masked(line) for line in lines if line.strip()]
        self.words.extend(texts)
        self._append([f" {text}" if text.startswith("--") else text for text in texts])  # the prefix of our own lines

    def _masked(self, line: bytes, limit: int = MAX_LINE) -> str:
        """Return a line with secrets masked. Masking comes before truncation, because half a secret is still secret."""
        return self._clean(line[: 4 * MAX_LINE].decode(errors="replace").rstrip())[:limit]

    def last_lines(self, limit: int = 3) -> str:
        """Return the server's last lines as one line: they usually tell why the server ended."""
        return " / ".join(list(self.words)[-limit:])

    def lines(self, limit: int) -> list[str]:
        """Return the last stored lines, from any process."""
        kept: list[str] = []
        for file in (self._old, self._file):
            with suppress(OSError):
                kept += file.read_text(encoding="utf-8", errors="replace").splitlines()
        return kept[-limit:]

    def lines_after(self, position: str, limit: int) -> tuple[list[str], str]:
        """Return at most `limit` lines after an earlier position, and the new position.

        A position is a file id with an offset. If the file no longer exists, all stored lines are new.
        """
        file_id, _, offset = position.partition("-")
        start, kept = int(offset) if offset.isdecimal() else 0, b""
        with suppress(OSError):
            old, old_id = _read_lines(self._old)
            kept = old[start if file_id == old_id else 0 :]
        now, now_id = b"", ""
        with suppress(OSError):
            now, now_id = _read_lines(self._file)
            kept = now[start:] if file_id == now_id else kept + now
        lines = kept.decode(errors="replace").splitlines()
        return lines[-limit:], f"{now_id}-{len(now)}"

    @property
    def _old(self) -> Path:
        return self._file.with_suffix(".log.1")

    def _clean(self, text: str) -> str:
        text = mask_values(self._redact(text), self.masked)
        if text.isprintable():
            return text
        return "".join(char if char.isprintable() or char == "\t" else "�" for char in text)

    def _append(self, lines: list[str]) -> None:
        if not lines:
            return
        stamp = strftime("%Y-%m-%d %H:%M:%S")
        data = "".join(f"{stamp} {line}\n" for line in lines).encode()
        with self._lock, suppress(OSError):  # a full disk must not stop the server
            if self._size is None:
                make_state_folder(self._file.parent)
                self._size = self._file.stat().st_size if self._file.exists() else 0
            if self._size + len(data) > MAX_BYTES and self._size:
                os.replace(self._file, self._old)
                self._size = 0
            with open(self._file, "ab", opener=private) as stream:
                stream.write(data[-MAX_BYTES:])
            self._size += len(data)


def _read_lines(file: Path) -> tuple[bytes, str]:
    """Return the complete lines of a file, and an id of the file that survives renaming."""
    with open(file, "rb") as stream:
        data = stream.read(2 * MAX_BYTES)
        return data[: data.rfind(b"\n") + 1], f"{os.fstat(stream.fileno()).st_ino:x}"
