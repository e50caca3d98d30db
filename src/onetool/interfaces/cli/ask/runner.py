"""Asks one question: reads the prompt and its attachments, runs it, and returns the exit code."""

import asyncio
import signal
import sys
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import aclosing, contextmanager, suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import click
import msgspec

from onetool.ask.errors import AskError, SessionError
from onetool.ask.events import Answer, CallEnded, CallStarted, Event, Notice, Started
from onetool.ask.messages import File, User
from onetool.core.call import current_caller
from onetool.interfaces.cli import inputs
from onetool.interfaces.cli.ask.terminal import Approver, Screen, continue_hint
from onetool.interfaces.cli.output import print_json, printable, styled
from onetool.interfaces.cli.person import Person, at_terminal, let_tools_ask

if TYPE_CHECKING:
    from onetool.app import App
    from onetool.app.ask import PendingAnswer

STDIN, STDIN_NAME = "-", "stdin"
MAX_TEXT_BYTES = 1024**2  # bytes, of all files together
MAX_PICTURE_BYTES = 5_000_000  # bytes, of each
_PICTURES = {
    "image/png": (b"\x89PNG\r\n\x1a\n",),
    "image/jpeg": (b"\xff\xd8\xff",),
    "image/gif": (b"GIF87a", b"GIF89a"),
}

NO_QUESTION = 'Give the question: onetool ask "What time is it?", or - to read it from standard input.'
NOTHING_CAME = (
    f"warning: no data on standard input for {inputs.INPUT_TIMEOUT:g} seconds; standard input is left out. "
    "`-f -` waits for data, `< /dev/null` avoids the wait."
)


class AskInput(NamedTuple):
    text: str
    files: tuple[File, ...] = ()


def read_question(words: Sequence[str], names: Sequence[str]) -> AskInput:
    """Read the question and the named files. Raises UsageError for input that can't be sent."""
    if len(words) > 1:
        raise click.UsageError(f'Put the question into quotes: onetool ask "{printable(" ".join(words))}"')
    prompt = words[0] if words else None
    if names.count(STDIN) > (prompt not in (None, STDIN)):
        raise click.UsageError("Standard input can be read once: as the question, or as one file.")
    if prompt is None and not (inputs.is_piped() and inputs.has_input()):
        raise click.UsageError(NO_QUESTION)
    if prompt == STDIN:
        inputs.print_prompt("the question")
    text = _decoded_text(inputs.read(MAX_TEXT_BYTES), "standard input") if prompt is None or prompt == STDIN else prompt
    if not text.strip():
        raise click.UsageError(f"The question is empty. {NO_QUESTION}")
    text = checked(text, "The question")
    files = [_attached_file(name) for name in names]
    if prompt not in (None, STDIN) and STDIN not in names:
        files += _piped()
    if sum(len(part.encode()) for part in (text, *(file.text or "" for file in files))) > MAX_TEXT_BYTES:
        raise _too_much("The question, with all files,")
    return AskInput(text, tuple(files))


def checked(text: str, what: str) -> str:
    """Return the text. Raises UsageError if it can't be encoded as UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise click.UsageError(f"{what} is not UTF-8.") from None
    return text


def _piped() -> Iterator[File]:
    """Yield standard input as an attachment to a question, like `git diff | onetool ask "Review this."`"""
    if not inputs.is_piped():
        return
    if not inputs.has_input():
        click.echo(NOTHING_CAME, err=True)
        return
    if data := inputs.read(MAX_PICTURE_BYTES):
        yield _attached(STDIN_NAME, data)


def _attached_file(name: str) -> File:
    if name == STDIN:
        inputs.print_prompt("the attachment")
        return _attached(STDIN_NAME, inputs.read(MAX_PICTURE_BYTES))
    refusal = ValueError('not a regular file. To attach what a command prints: … | onetool ask -f - "…"')
    try:
        with inputs.open_regular_file(name, refusal) as stream:
            data = stream.read(MAX_PICTURE_BYTES + 1)
    except (OSError, ValueError) as error:  # a NUL in its name is a ValueError
        why = getattr(error, "strerror", None) or error
        raise click.BadParameter(f"can't read {name}: {why}.", param_hint="--file") from None
    return _attached(name, data)


def _attached(name: str, data: bytes) -> File:
    shown = name.encode(errors="replace").decode()
    # By the first bytes: the name may be wrong.
    kind = next((kind for kind, starts in _PICTURES.items() if data.startswith(starts)), None)
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        kind = "image/webp"
    if kind is None:
        return File(name=shown, text=_decoded_text(data, name))
    if len(data) > MAX_PICTURE_BYTES:
        raise click.UsageError(f"{name} is larger than {MAX_PICTURE_BYTES // 1_000_000} MB, the maximum for a picture.")
    return File(name=shown, kind=kind, data=b64encode(data).decode())


def _decoded_text(data: bytes, name: str) -> str:
    try:
        if b"\0" not in data:  # NUL is valid UTF-8, but not text
            if len(data) > MAX_TEXT_BYTES:
                raise _too_much(name)
            return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        pass
    raise click.UsageError(f"{name} is neither text in UTF-8 nor a picture (PNG, JPEG, GIF, WebP).")


def _too_much(what: str) -> click.UsageError:
    hint = "A tool can read a large file in parts: name it in the question."
    return click.UsageError(f"{what} is larger than {MAX_TEXT_BYTES // 1024**2} MiB of text. {hint}")


# Notice while the model is silent

NOTICE_AFTER = (8.0, 60.0)  # seconds of silence


class SilenceNotice:
    """A notice that is printed when the model sends nothing for a while, except while tools run."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._waiting_for = ""
        self._calls: set[str] = set()  # under way
        self._last_event = 0.0  # on the loop's clock
        self._times = 0  # notices of this silence
        self._timer: asyncio.TimerHandle | None = None

    def on_event(self, event: Event) -> None:
        if isinstance(event, Started):
            self._waiting_for = f"{event.model} ({event.provider})"
        elif isinstance(event, CallStarted):
            self._calls.add(event.call.id)
        elif isinstance(event, CallEnded):
            self._calls.discard(event.call.id)
        loop = asyncio.get_running_loop()
        self._last_event, self._times = loop.time(), 0
        if self._timer is None:  # models send thousands of pieces: one timer serves all of them
            self._schedule(loop)

    def end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _check(self) -> None:
        loop = asyncio.get_running_loop()
        if self._calls:
            self._last_event = loop.time()
        elif loop.time() >= self._last_event + NOTICE_AFTER[self._times]:
            self._times += 1
            self._say(f"waiting for {self._waiting_for} …")
        self._schedule(loop)

    def _schedule(self, loop: asyncio.AbstractEventLoop) -> None:
        """Schedule the next notice of this silence. After the last notice, the next event restarts the schedule."""
        is_due = self._times < len(NOTICE_AFTER)
        self._timer = loop.call_at(self._last_event + NOTICE_AFTER[self._times], self._check) if is_due else None


# Running the question

SESSION_WAIT = 10.0  # seconds to wait for a session in use
INTERRUPTED, TERMINATED = 128 + signal.SIGINT, 128 + signal.SIGTERM


class AskRunner:
    """One run of a question: events, approval, signals, exit code."""

    def __init__(
        self,
        app: "App",
        question: AskInput,
        options: dict[str, Any],
        as_json: bool = False,
        chat: asyncio.Runner | None = None,
        person: Person | None = None,
    ) -> None:
        """Prepare a question. `chat` runs the questions of a chat, for which no hint on how to continue is printed.

        `person` approves calls; by default, the user at the terminal.
        """
        self._app = app
        self._question = question
        self._options = options
        self._as_json = as_json
        self._chat = chat
        self._person = person
        self._screen = Screen(tells_denied=options["approve"] != "ask", tells_how=chat is None)
        self._pending: PendingAnswer | None = None

    def run(self) -> int:
        """Run the question and return the exit code."""
        let_tools_ask()
        try:
            (self._chat.run if self._chat else asyncio.run)(self._run())
        except AskError as error:
            return self._failed(error)
        except KeyboardInterrupt:
            return self._stopped(INTERRUPTED)
        except asyncio.CancelledError:
            return self._stopped(TERMINATED)
        if self._as_json:
            print_json(self._shown())
        return 0

    async def _run(self) -> None:
        options = {**self._options, "approve": self._approval()}
        with end_heeded():
            try:
                await self._follow(options)
            except SessionError as error:
                if error.reason != "busy":
                    raise
                self._screen.say(f"{error}; waiting for it, up to {SESSION_WAIT:g} seconds …")
                await self._follow({**options, "wait": SESSION_WAIT})

    async def _follow(self, options: dict[str, Any]) -> None:
        self._pending = asking = self._app.ask(self._question.text, files=self._question.files, **options)
        silence = SilenceNotice(self._screen.say)
        try:
            async with aclosing(asking.events()) as events:
                async for event in events:
                    if not self._as_json:
                        self._show(event, silence)
                    elif isinstance(event, Notice):
                        self._screen.show(event)
        finally:
            silence.end()

    def _show(self, event: Event, silence: SilenceNotice) -> None:
        if sys.stderr.isatty():
            silence.on_event(event)
        named = self._options["session"] and not self._options["new_session"]
        if isinstance(event, Started) and event.is_new and named:  # perhaps a typo
            others = self._app.sessions.similar_ids(event.session_id)
            self._screen.say(f"new session {event.session_id}{f'; did you mean {others[0]}?' if others else ''}")
        self._screen.show(event)

    def _approval(self) -> Any:
        """Return the approval mode: a word, or a function that asks the user."""
        word, caller = self._options["approve"], current_caller.get()
        if word != "ask":
            return word
        return Approver(
            self._person or (caller if isinstance(caller, Person) else at_terminal()),
            self._app.runtime.redact,
            self._screen.break_line,
            self._app.catalog.registry.names,
        )

    # The end of a question

    def _failed(self, error: AskError) -> int:
        if self._as_json:
            print_json(self._shown())
            return 1
        self._screen.break_line()
        click.echo(f"{styled('Error:', fg='red')} {printable(error)}", err=True)
        for hint in error.hints:
            click.echo(f"  {printable(hint)}", err=True)
        if isinstance(error, SessionError):  # its message says what is kept
            return 1
        session = self.session
        if self._chat or not sys.stderr.isatty():
            return 1
        with suppress(SessionError):
            if session and not all(isinstance(one, User) for one in self._app.sessions.read(session).messages):
                self._screen.say(f"The conversation was saved; continue: {continue_hint(session)}")
        return 1

    def _stopped(self, code: int) -> int:
        self._screen.break_line()
        session = self.session
        next_time = continue_hint(session) if session and self._app.sessions.has(session) else ""
        if self._chat:
            click.echo("Stopped.", err=True)
        elif self._as_json:
            print_interrupted(self._pending and self._pending.answer, [f"continue: {next_time}"] if next_time else ())
        else:
            kept = f" The session was saved; continue: {next_time}" if next_time else ""
            click.echo(f"Interrupted.{kept}", err=True)
        return code

    @property
    def answer(self) -> Answer | None:
        """The answer so far."""
        return self._pending.answer if self._pending else None

    @property
    def session(self) -> str | None:
        """The session's id, if anything was said in the session."""
        return self._pending.answer.session_id if self._pending and self._pending.answer.provider else None

    def _shown(self) -> Any:
        return None if self._pending is None else msgspec.to_builtins(self._pending.answer)


@contextmanager
def end_heeded() -> Iterator[None]:
    """Handle SIGTERM like Ctrl-C, for the running task."""
    task, loop = asyncio.current_task(), asyncio.get_running_loop()
    with suppress(NotImplementedError, ValueError, RuntimeError):  # not every system can, and not every thread
        if task is not None:
            loop.add_signal_handler(signal.SIGTERM, task.cancel)
    try:
        yield
    finally:
        with suppress(NotImplementedError, ValueError, RuntimeError):
            loop.remove_signal_handler(signal.SIGTERM)


def print_interrupted(answer: Answer | None = None, hints: Iterable[str] = ()) -> None:
    error = {"reason": "interrupted", "message": "interrupted before there was an answer", "hints": [*hints]}
    print_json({**msgspec.to_builtins(answer or Answer(answer=None)), "error": error})
