"""The log of a server: what it writes to standard error, and what happened to it, in memory and in a small file.

`onetool servers logs NAME` reads the file, also while another process runs the server. Secrets are masked before
anything is kept.
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

MAX_LINE = 2_000  # characters of a line
SHORT = 200  # characters of one that is in the wrong place
MAX_BYTES = 256 * 1024  # of the file, which then goes on in a new one; one old one is kept
IN_MEMORY = 50  # lines

Redact = Callable[[Any], Any]
"""Text or data, without secrets."""


class ServerLog:
    """`note` adds our own lines, `write_stderr` those of the server. Thread-safe."""

    def __init__(self, name: str, file: Path, redact: Redact) -> None:
        self.name = name
        self._file = file
        self._redact = redact
        self._lock = Lock()
        self._rest = b""
        self._size: int | None = None
        self.masked: tuple[str, ...] = ()  # values that are masked here alone: elsewhere they are no secrets
        self.words: deque[str] = deque(maxlen=IN_MEMORY)  # of the server, since it was last started

    def note(self, text: str) -> None:
        log.info("%s: %s", self.name, text := self._clean(text[: 4 * MAX_LINE])[:MAX_LINE])
        self._append([f"-- {text}"])

    def write_stderr(self, data: bytes) -> None:
        """Add a piece of the server's standard error, wherever that was cut."""
        *lines, rest = (self._rest + data).split(b"\n")
        if len(rest) > MAX_LINE:
            lines, rest = [*lines, rest], b""
        self._rest = rest
        self._add_lines(lines)

    def end_stderr(self) -> None:
        """Add what stands on the last line: there is nothing more to come."""
        rest, self._rest = self._rest, b""
        self._add_lines([rest])

    def write_stray(self, line: bytes) -> None:
        """Add a line of the server's standard output that isn't a message."""
        text = f"(on standard output) {self._cleaned(line, SHORT)}"
        self.words.append(text)
        self._append([text])

    def _add_lines(self, lines: list[bytes]) -> None:
        texts = [self._cleaned(line) for line in lines if line.strip()]
        self.words.extend(texts)
        self._append([f" {text}" if text.startswith("--") else text for text in texts])  # that is how ours begin

    def _cleaned(self, line: bytes, most: int = MAX_LINE) -> str:
        """Return a line without secrets. It is cut only after masking: half a secret is one, too."""
        return self._clean(line[: 4 * MAX_LINE].decode(errors="replace").rstrip())[:most]

    def last_lines(self, most: int = 3) -> str:
        """Return the end of what the server said, in one line: most often it says why it ended."""
        return " / ".join(list(self.words)[-most:])

    def lines(self, most: int) -> list[str]:
        """Return the last lines that were kept, by whichever process."""
        kept: list[str] = []
        for file in (self._old, self._file):
            with suppress(OSError):
                kept += file.read_text(encoding="utf-8", errors="replace").splitlines()
        return kept[-most:]

    def lines_after(self, position: str, most: int) -> tuple[list[str], str]:
        """Return the lines that came after an earlier position, at most so many, and the position now.

        A position is a file and how far it was read. Where that file is gone, all that is kept counts as new.
        """
        named, _, said = position.partition("-")
        start, kept = int(said) if said.isdecimal() else 0, b""
        with suppress(OSError):
            old, old_id = _read(self._old)
            kept = old[start if named == old_id else 0 :]
        now, now_id = b"", ""
        with suppress(OSError):
            now, now_id = _read(self._file)
            kept = now[start:] if named == now_id else kept + now
        lines = kept.decode(errors="replace").splitlines()
        return lines[-most:], f"{now_id}-{len(now)}"

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
        with self._lock, suppress(OSError):  # a full disk must not stop a server
            if self._size is None:
                make_state_folder(self._file.parent)
                self._size = self._file.stat().st_size if self._file.exists() else 0
            if self._size + len(data) > MAX_BYTES and self._size:
                os.replace(self._file, self._old)
                self._size = 0
            with open(self._file, "ab", opener=private) as stream:
                stream.write(data[-MAX_BYTES:])
            self._size += len(data)


def _read(file: Path) -> tuple[bytes, str]:
    """Return the whole lines of a file, and an id that stays when the file is renamed."""
    with open(file, "rb") as stream:
        data = stream.read(2 * MAX_BYTES)
        return data[: data.rfind(b"\n") + 1], f"{os.fstat(stream.fileno()).st_ino:x}"
