"""Reads the turns of a chat: a line, or several that belong together, from a terminal or from a pipe."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import click

from onetool.interfaces.cli.ask.runner import MOST_TEXT
from onetool.interfaces.cli.line_editor import LineEditor

PROMPT, FURTHER = "> ", ".. "
QUOTES = '"""'
CONTINUED = "\\"
TOO_LONG = f"That is larger than {MOST_TEXT // 1024**2} MiB. A tool can read a large file in parts: name it."
NOT_TEXT = "That is not UTF-8."


class Turn(NamedTuple):
    """What was said at once. `is_quoted`: in three quotes, so that it is a question, however it begins."""

    text: str
    is_quoted: bool = False
    problem: str = ""  # why it can't be taken


class TurnReader:
    """Iterate over it for the turns, up to the end of what is typed or piped in."""

    def __init__(self, history: Path, complete: Callable[[str], list[str]]) -> None:
        self._editor = LineEditor(history, complete, " \t\n")
        self.is_live = self._editor.is_live

    def __iter__(self) -> Iterator[Turn]:
        while (turn := self._turn()) is not None:
            if turn.text.strip() or turn.problem:
                yield turn

    def remember(self, turn: Turn, remembered: str | None) -> None:
        """Offer the lines of a turn again; in later chats those of `remembered`."""
        for line in turn.text.split("\n"):
            self._editor.remember(line)
        for line in (remembered or "").split("\n"):
            self._editor.keep(line)

    def save(self) -> None:
        self._editor.save()

    def _turn(self) -> Turn | None:
        """None at the end. Ctrl-C at a terminal throws away what was typed."""
        lines: list[str] = []
        try:
            return self._read_into(lines)
        except EOFError:
            if self.is_live:
                click.echo(err=True)
            return _joined(lines) if lines else None
        except KeyboardInterrupt:
            if not self.is_live:
                raise
            click.echo(err=True)
            return Turn("")
        except UnicodeDecodeError:
            return Turn("", problem=NOT_TEXT)
        except _TooLongError:
            return Turn("", problem=TOO_LONG)

    def _read_into(self, lines: list[str]) -> Turn:
        while True:
            lines.append(self._line(FURTHER if lines else PROMPT))
            if sum(map(len, lines)) > MOST_TEXT:
                raise _TooLongError
            if lines[0].lstrip().startswith(QUOTES):
                if _is_closed(lines):
                    return _joined(lines)
            elif not lines[-1].endswith(CONTINUED):
                return _joined(lines)

    def _line(self, prompt: str) -> str:
        if self.is_live:
            return self._editor.read(prompt)
        line = sys.stdin.buffer.readline(MOST_TEXT + 1)
        if not line:
            raise EOFError
        if len(line) > MOST_TEXT:
            while line and not line.endswith(b"\n"):  # the rest of it is no turn of its own
                line = sys.stdin.buffer.readline(MOST_TEXT)
            raise _TooLongError
        return line.decode("utf-8-sig").rstrip("\r\n")


class _TooLongError(Exception):
    pass


def _is_closed(lines: list[str]) -> bool:
    first, last = lines[0].strip(), lines[-1].rstrip()
    return last.endswith(QUOTES) and (len(lines) > 1 or len(first) >= 2 * len(QUOTES))


def _joined(lines: list[str]) -> Turn:
    text = "\n".join(lines)
    if lines[0].lstrip().startswith(QUOTES):
        return Turn(text.strip().removeprefix(QUOTES).removesuffix(QUOTES).strip("\n"), is_quoted=True)
    return Turn("\n".join(line.removesuffix(CONTINUED) for line in lines))
