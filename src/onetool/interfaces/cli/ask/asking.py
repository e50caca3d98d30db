"""One question, from here to its exit code: asked, shown, and ended by an answer, an error or a signal."""

import asyncio
import signal
import sys
from collections.abc import Iterable
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING, Any

import click
import msgspec

from onetool.ask.errors import AskError, SessionError
from onetool.ask.events import Answer, Event, Started
from onetool.ask.messages import User
from onetool.core.caller import current_caller
from onetool.interfaces.cli.ask.approving import Approver
from onetool.interfaces.cli.ask.question import Question
from onetool.interfaces.cli.ask.showing import Screen, go_on
from onetool.interfaces.cli.ask.silence import Silence
from onetool.interfaces.cli.output import print_json, printable, styled
from onetool.interfaces.cli.person import Person, at_terminal, let_tools_ask

if TYPE_CHECKING:
    from onetool.app import App
    from onetool.app.asking import Asking

PATIENCE = 10.0  # seconds that a session in use is waited for
LOST = "The session's file was taken away meanwhile: nothing of this is kept."
INTERRUPTED, TERMINATED = 128 + signal.SIGINT, 128 + signal.SIGTERM


class Errand:
    """What one command has to do."""

    def __init__(self, app: "App", question: Question, wishes: dict[str, Any], as_json: bool) -> None:
        self._app = app
        self._question = question
        self._wishes = wishes
        self._as_json = as_json
        self._screen = Screen(tells_denied=wishes["approve"] != "ask")
        self._asking: Asking | None = None

    def run(self) -> int:
        """The exit code. What there is to say has been said."""
        let_tools_ask()
        try:
            asyncio.run(self._run())
        except AskError as error:
            return self._failed(error)
        except KeyboardInterrupt:
            return self._stopped(INTERRUPTED)
        except asyncio.CancelledError:
            return self._stopped(TERMINATED)
        if self._as_json:
            print_json(self._shown())
        self._tell_if_lost()
        return 0

    async def _run(self) -> None:
        self._heed_the_end()
        wishes = {**self._wishes, "approve": self._approval()}
        try:
            await self._follow(wishes)
        except SessionError as error:
            if error.reason != "busy":
                raise
            self._screen.say(f"{error}; waiting for it, up to {PATIENCE:g} seconds …")
            await self._follow({**wishes, "wait": PATIENCE})

    async def _follow(self, wishes: dict[str, Any]) -> None:
        self._asking = asking = self._app.ask(self._question.text, files=self._question.files, **wishes)
        silence = Silence(self._screen.say)
        try:
            async with aclosing(asking.events()) as events:
                async for event in events:
                    if not self._as_json:
                        self._show(event, silence)
        finally:
            silence.end()

    def _show(self, event: Event, silence: Silence) -> None:
        if sys.stderr.isatty():
            silence.heard(event)
        if isinstance(event, Started):
            self._tell_if_new(event)
        self._screen.show(event)

    def _tell_if_new(self, event: Started) -> None:
        """Who meant to go on, and mistyped the name, should know."""
        if event.is_new and self._wishes["session"] and not self._wishes["new_session"]:
            others = self._app.sessions.like(event.session_id)
            self._screen.say(f"new session {event.session_id}{f'; there is {others[0]}' if others else ''}")

    def _approval(self) -> Any:
        """A word, or somebody to ask."""
        word, person = self._wishes["approve"], current_caller.get()
        if word != "ask":
            return word
        return Approver(
            person if isinstance(person, Person) else at_terminal(),
            self._app.redact,
            self._screen.break_line,
            self._app.registry.names,
        )

    def _heed_the_end(self) -> None:
        """A program that ends us lets us put things in order, as Ctrl-C does."""
        task = asyncio.current_task()
        with suppress(NotImplementedError, ValueError, RuntimeError):  # not every system can, and not every thread
            if task is not None:
                asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)

    # What is said at the end

    def _failed(self, error: AskError) -> int:
        if self._as_json:
            print_json(self._shown())
            return 1
        self._screen.break_line()
        click.echo(f"{styled('Error:', fg='red')} {printable(error)}", err=True)
        for hint in error.hints:
            click.echo(f"  {printable(hint)}", err=True)
        if isinstance(error, SessionError):  # which says itself what is kept
            return 1
        session = self._session()
        if not self._tell_if_lost() and sys.stderr.isatty() and session and self._has_more_than_questions(session):
            self._screen.say(f"What was said is kept; go on: {go_on(session)}")
        return 1

    def _has_more_than_questions(self, session: str) -> bool:
        """Where the model was never heard (a wrong name, no key), there is nothing to go on with."""
        try:
            return not all(isinstance(one, User) for one in self._app.sessions.read(session).messages)
        except SessionError:
            return False

    def _stopped(self, code: int) -> int:
        self._screen.break_line()
        session = self._session()
        next_time = go_on(session) if session and self._app.sessions.has(session) else ""
        if self._as_json:
            print_interrupted(self._asking and self._asking.answer, [f"go on: {next_time}"] if next_time else ())
        else:
            kept = f" The session is kept; go on: {next_time}" if next_time else ""
            click.echo(f"Interrupted.{kept}", err=True)
        self._tell_if_lost()
        return code

    def _tell_if_lost(self) -> bool:
        """Whether somebody has deleted what was said, while we wrote to it."""
        session = self._session()
        is_lost = session is not None and not self._app.sessions.has(session)
        if is_lost:
            self._screen.say(LOST, "yellow")
        return is_lost

    def _session(self) -> str | None:
        """Its id, if anything has been said in it."""
        return self._asking.answer.session_id if self._asking and self._asking.answer.provider else None

    def _shown(self) -> Any:
        return None if self._asking is None else msgspec.to_builtins(self._asking.answer)


def print_interrupted(answer: Answer | None = None, hints: Iterable[str] = ()) -> None:
    """What there is of an answer that nobody waited for."""
    error = {"reason": "interrupted", "message": "it was interrupted before there was an answer", "hints": [*hints]}
    print_json({**msgspec.to_builtins(answer or Answer(answer=None)), "error": error})
