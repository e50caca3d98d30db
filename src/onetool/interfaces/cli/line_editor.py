"""Reads lines at a terminal, with history and completion where Python was built with readline; a pipe is read plainly.

The history is one text file per command, which only its owner can read. Each process adds what was typed in it.
"""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import click

from onetool.core.os_files import private

MOST_HISTORY = 1000  # lines


class LineEditor:
    """`complete` gives every word that the last one of a line could become; `delimiters` are what ends a word."""

    def __init__(self, history: Path, complete: Callable[[str], list[str]], delimiters: str, indent: str = "") -> None:
        """`indent` is what the tabulator inserts in a line that is empty so far."""
        self._history = history
        self._complete = complete
        self._indent = indent
        self._new: list[str] = []  # lines to keep
        self.is_live = sys.stdin.isatty()
        self._readline = _load_readline() if self.is_live else None
        if self._readline is not None:
            self._set_up(self._readline, delimiters)

    def read(self, prompt: str, begun: str = "") -> str:
        """A line, which begins with what is `begun`, as if it had been typed. EOFError where there is none.

        A prompt is for people; and `input` would write it to standard output, which is for results.
        """
        if not self.is_live:
            line = sys.stdin.readline()
            if not line:
                raise EOFError
            return line.rstrip("\n")
        with self._begun_with(begun):
            return input(prompt)

    def remember(self, line: str) -> None:
        """Offer a line again in this process."""
        if self._readline is not None and line.strip():
            self._readline.add_history(line)

    def keep(self, line: str) -> None:
        """Offer a line again in later ones."""
        if self.is_live and line.strip():
            self._new.append(line)

    def save(self) -> None:
        """Write down what is to be kept."""
        if not self._new:
            return
        try:
            self._history.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            lines = [*self._read_history(), *self._new][-MOST_HISTORY:]
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
            with open(private(self._history, flags), "w", encoding="utf-8", errors="replace") as stream:
                stream.writelines(f"{line}\n" for line in lines)
        except OSError as error:
            click.echo(f"The history could not be saved: {error}", err=True)

    def _read_history(self) -> list[str]:
        try:
            text = self._history.read_text(encoding="utf-8", errors="replace")
        except OSError:  # there is none yet, or it can't be read: then there is no history
            return []
        return [line for line in text.split("\n") if line][-MOST_HISTORY:]

    def _set_up(self, readline: ModuleType, delimiters: str) -> None:
        found: list[str] = []

        def complete(_word: str, state: int) -> str | None:
            if state == 0:
                line = readline.get_line_buffer()[: readline.get_endidx()]
                if self._indent and not line.strip():
                    readline.insert_text(self._indent)
                    return None
                found[:] = self._complete(line)
            return found[state] if state < len(found) else None

        readline.set_completer(complete)
        readline.set_completer_delims(delimiters)
        readline.parse_and_bind("bind ^I rl_complete" if "libedit" in (readline.__doc__ or "") else "tab: complete")
        readline.set_auto_history(False)
        for line in self._read_history():
            readline.add_history(line)

    @contextmanager
    def _begun_with(self, text: str) -> Iterator[None]:
        readline = self._readline
        if readline is None or not text:
            yield
            return
        readline.set_startup_hook(lambda: readline.insert_text(text))
        try:
            yield
        finally:
            readline.set_startup_hook(None)


def _load_readline() -> ModuleType | None:
    try:
        import readline
    except ImportError:
        return None
    return readline
