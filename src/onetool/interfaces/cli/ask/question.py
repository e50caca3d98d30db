"""What is asked, and what is attached to it: a prompt, files, standard input."""

import os
import stat
from base64 import b64encode
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import click

from onetool.ask.messages import File
from onetool.interfaces.cli.ask import stdin
from onetool.interfaces.cli.output import printable

STDIN, STDIN_NAME = "-", "stdin"
MOST_TEXT = 1024**2  # bytes, of all texts together
MOST_PICTURE = 5_000_000  # bytes, of each
_PICTURES = {
    "image/png": (b"\x89PNG\r\n\x1a\n",),
    "image/jpeg": (b"\xff\xd8\xff",),
    "image/gif": (b"GIF87a", b"GIF89a"),
}

NO_QUESTION = 'Give the question: onetool ask "What time is it?", or - to read it from standard input.'
NOTHING_CAME = (
    f"warning: nothing came on standard input for {stdin.PATIENCE:g} seconds; it is left out. "
    "`-f -` waits for it, `< /dev/null` says that there is none."
)


class Question(NamedTuple):
    text: str
    files: tuple[File, ...] = ()


def read_question(words: Sequence[str], names: Sequence[str]) -> Question:
    """The question, and the files of these names. Raises a usage error where one can't be sent."""
    if len(words) > 1:
        raise click.UsageError(f'Put the question into quotes: onetool ask "{printable(" ".join(words))}"')
    prompt = words[0] if words else None
    if names.count(STDIN) > (prompt not in (None, STDIN)):
        raise click.UsageError("Standard input can be read once: as the question, or as one file.")
    text = _asked(prompt)
    files = [_file(name) for name in names]
    if prompt not in (None, STDIN) and STDIN not in names:
        files += _piped()
    _check_size(text, files)
    return Question(text, tuple(files))


def _asked(prompt: str | None) -> str:
    if prompt is None and not (stdin.is_piped() and stdin.comes()):
        raise click.UsageError(NO_QUESTION)
    if prompt == STDIN:
        stdin.invite("the question")
    text = _text(stdin.read(MOST_TEXT), "standard input") if prompt is None or prompt == STDIN else prompt
    if not text.strip():
        raise click.UsageError(f"The question is empty. {NO_QUESTION}")
    return checked(text, "The question")


def checked(text: str, what: str) -> str:
    """A text of the command line that can be sent: it may have come as bytes that mean nothing."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise click.UsageError(f"{what} is not UTF-8.") from None
    return text


def _piped() -> Iterator[File]:
    """What comes on standard input beside a question, like `git diff | onetool ask "Review this."`"""
    if not stdin.is_piped():
        return
    if not stdin.comes():
        click.echo(NOTHING_CAME, err=True)
        return
    if data := stdin.read(MOST_PICTURE):
        yield _attached(STDIN_NAME, data)


def _file(name: str) -> File:
    if name == STDIN:
        stdin.invite("what is to be attached")
        return _attached(STDIN_NAME, stdin.read(MOST_PICTURE))
    try:
        data = _content(name)
    except (OSError, ValueError) as error:  # a NUL in its name is a ValueError
        why = getattr(error, "strerror", None) or error
        raise click.BadParameter(printable(f"can't read {name}: {why}."), param_hint="--file") from None
    return _attached(name, data)


def _content(name: str) -> bytes:
    """Of a regular file: what else has a name may never begin, or never end."""
    with open(name, "rb", opener=_without_waiting) as stream:
        if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
            raise ValueError('it is no regular file. What a command prints is piped in: … | onetool ask -f - "…"')
        return stream.read(MOST_PICTURE + 1)


def _without_waiting(name: str, flags: int) -> int:
    return os.open(name, flags | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0))


def _attached(name: str, data: bytes) -> File:
    shown = name.encode(errors="replace").decode()
    kind = _kind_of_picture(data)
    if kind is None:
        return File(name=shown, text=_text(data, name))
    if len(data) > MOST_PICTURE:
        raise _refused(f"{name} is larger than {MOST_PICTURE // 1_000_000} MB, which is the most for a picture.")
    return File(name=shown, kind=kind, data=b64encode(data).decode())


def _kind_of_picture(data: bytes) -> str | None:
    """By its first bytes: a name can say anything."""
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for kind, starts in _PICTURES.items() if data.startswith(starts)), None)


def _text(data: bytes, name: str) -> str:
    try:
        if b"\0" not in data:  # which would be UTF-8, but no text
            if len(data) > MOST_TEXT:
                raise _too_much(name)
            return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        pass
    raise _refused(f"{name} is neither text in UTF-8 nor a picture (PNG, JPEG, GIF, WebP).")


def _check_size(text: str, files: Sequence[File]) -> None:
    if sum(len(part.encode()) for part in (text, *(file.text or "" for file in files))) > MOST_TEXT:
        raise _too_much("What is asked, with all files,")


def _too_much(what: str) -> click.UsageError:
    hint = "A tool can read a large file in parts: name it in the question."
    return _refused(f"{what} is larger than {MOST_TEXT // 1024**2} MiB of text. {hint}")


def _refused(message: str) -> click.UsageError:
    return click.UsageError(printable(message))
