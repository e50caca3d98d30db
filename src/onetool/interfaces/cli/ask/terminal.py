"""Shows what happens while a question is answered, and asks the user to approve tool calls.

Only the answer goes to standard output. A terminal shows it as it arrives, including the model's text before tool
calls. A pipe gets only the answer, once it is known which part of the model's text that is. Models send thousands of
small pieces per second, so pieces are collected and written together. A call is not approved without a reply.
"""

import asyncio
import os
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from time import monotonic
from typing import Any

import click

from onetool.ask.events import Answer, CallEnded, CallStarted, Done, Event, Notice, Started, Text, Thinking
from onetool.ask.sessions.records import LAST
from onetool.core.call import Declined, ForPerson, ToolCall
from onetool.core.errors import cut
from onetool.core.spec import ToolSpec
from onetool.core.text import escape_invisible, skeleton
from onetool.interfaces.cli.ask.wording import (
    MARK,
    argument_lines,
    call_line,
    marked,
    outcome_line,
    readable,
    tokens_used,
)
from onetool.interfaces.cli.output import counted, printable, stdout, styled
from onetool.interfaces.cli.person import Person, can_be_asked

PAUSE = 0.02  # seconds between two writes of what a model says


class Screen:
    """A printer of events. `tells_denied` also prints denied calls; `tells_how`, how to continue."""

    def __init__(self, tells_denied: bool = True, tells_how: bool = True) -> None:
        self._tells_denied = tells_denied
        self._tells_how = tells_how
        self._is_live = stdout().isatty()
        self._is_watched = sys.stderr.isatty()
        self._step = 0
        self._texts: list[str] = []  # of the model, in this step
        self._unshown: list[str] = []  # the last texts, not written yet
        self._written = 0.0  # the time of the last write
        self._later: asyncio.TimerHandle | None = None
        self._in_line = False  # the last output did not end its line
        self._open: str | None = None  # the id of the call whose line is not ended
        self._thinks = False

    def show(self, event: Event) -> None:
        match event:
            case Started():  # the model is named at the end
                pass
            case Text():
                self._text(event)
            case Thinking():
                self._next(event.step)
                if self._is_watched and not self._thinks:
                    self._thinks = True
                    self.say("thinking …")
            case CallStarted():
                self._started(event.call)
            case CallEnded():
                self._ended(event)
            case Notice():
                self.say(event.text)
            case Done():
                self._finish(event.answer)

    def say(self, text: str, colour: str | None = None) -> None:
        """Print a line on standard error."""
        self.break_line()
        self._err(printable(text), fg=colour, dim=colour is None)

    def break_line(self) -> None:
        """End the current line before something else is printed."""
        self._catch_up()
        if self._in_line:
            self._out("\n")
        if self._open is not None:
            self._open = None
            click.echo(err=True)

    # The model's words

    def _text(self, event: Text) -> None:
        self._next(event.step)
        self._texts.append(event.text)
        if self._is_live:
            if self._open is not None:
                self.break_line()
            self._unshown.append(event.text)
            if monotonic() >= self._written + PAUSE:
                self._catch_up()
            elif self._later is None:
                try:
                    self._later = asyncio.get_running_loop().call_later(PAUSE, self._catch_up_quietly)
                except RuntimeError:  # no event loop
                    self._catch_up()

    def _catch_up_quietly(self) -> None:
        with suppress(OSError):  # the next write fails as well, and reports it
            self._catch_up()

    def _catch_up(self) -> None:
        if self._later is not None:
            self._later.cancel()
            self._later = None
        if self._unshown:
            text = readable("".join(self._unshown))
            self._unshown.clear()
            self._out(text)
            self._written = monotonic()

    def _next(self, step: int) -> None:
        if step != self._step:
            self._step, self._texts, self._thinks = step, [], False

    def _out(self, text: str) -> None:
        """Write to standard output; unencodable characters become `?`."""
        stream = stdout()
        encoding = stream.encoding or "utf-8"
        stream.write(text.encode(encoding, "replace").decode(encoding))
        stream.flush()
        if text:
            self._in_line = self._is_live and not text.endswith("\n")

    # Calls

    def _started(self, call: ToolCall) -> None:
        # Text before a call is not the answer, and a pipe does not get it.
        text = "".join(self._texts).strip()
        if text and not self._is_live:
            self.say(readable(text))
        self._texts = []
        self.break_line()
        if self._is_watched:  # a log gets the whole line at the end
            self._err(call_line(call), nl=False, fg="cyan")
            self._open = call.id

    def _ended(self, event: CallEnded) -> None:
        how, is_well = outcome_line(event.result, event.is_cached)
        if self._open == event.call.id:
            self._open = None
        else:
            self.break_line()
            self._err(call_line(event.call), nl=False, fg="cyan")
        self._err(f" → {how}", fg="green" if is_well else "red")

    # The end

    def _finish(self, answer: Answer) -> None:
        self.break_line()
        if not (self._is_live and "".join(self._texts).strip()):  # then it has not been shown yet
            text = answer.answer or ""
            shown = readable(text) if self._is_live else text
            self._out(shown if shown.endswith("\n") else f"{shown}\n")
        if answer.stop == "length":
            self.say("The answer is cut off: it has reached the maximum length, ask.max_tokens in the config.")
        if answer.denied and self._tells_denied:
            asks = ("--approve ask asks you here, call by call",) if can_be_asked() else ()
            for line in (f"Not run: {', '.join(answer.denied)}", *asks, *answer.hints):
                self.say(line, "yellow")
        if self._is_watched:
            used = tokens_used(answer.usage.input, answer.usage.output)
            facts = [f"{answer.model} ({answer.provider})", counted(answer.steps, "step"), used]
            how = f"continue: {continue_hint(answer.session_id or LAST)}" if self._tells_how else ""
            self.say(" · ".join(filter(None, (*facts, how))))

    def _err(self, text: str, nl: bool = True, fg: str | None = None, dim: bool = False) -> None:
        click.echo(styled(text, fg=fg, dim=dim or None) if self._is_watched else text, err=True, nl=nl)


def continue_hint(session: str) -> str:
    return printable(f'onetool ask --session {session} "…"')


# Approval of calls

YES, NO, ALWAYS, VIEW = ("y", "yes"), ("n", "no"), ("a", "always"), ("v", "view")
ANSWERS = (*YES, *NO, *ALWAYS, *VIEW)
MAX_MISTAKES = 3  # invalid answers; then the call is not approved
CHOICES = "Run {}? y = yes, n = no, a = always for this tool, in this question"
MORE = ", v = view all of it"
MAX_LOOKALIKES = 3
USUAL_COLUMNS = 80


class Approver:
    """Approval of calls by the user, one after the other. `names` returns the names of all tools."""

    def __init__(
        self,
        person: Person,
        redact: Callable[[Any], Any],
        before: Callable[[], None],
        names: Callable[[], Iterable[str]] = tuple,
    ) -> None:
        self._person = person
        self._names = names
        self._redact = redact
        self._before = before  # called when a question is about to be shown
        self._always: dict[str, ToolSpec] = {}
        self._turn = asyncio.Lock()

    async def __call__(self, call: ToolCall, spec: ToolSpec) -> bool:
        async with self._turn:
            if self._always.get(spec.name) is spec:  # not if the tool was replaced since
                return True
            self._before()
            reply, mistakes = await self._answer(self._question(call, spec)), 0
            while reply in VIEW or (reply not in ANSWERS and mistakes < MAX_MISTAKES):
                if reply not in VIEW:
                    mistakes += 1
                    click.echo(f"{printable(cut(reply, 20))!r} is not one of the answers.", err=True)
                reply = await self._answer(self._question(call, spec, whole=reply in VIEW))
            if reply in ALWAYS:
                self._always[spec.name] = spec
            return reply in YES or reply in ALWAYS

    def _question(self, call: ToolCall, spec: ToolSpec, whole: bool = False) -> ForPerson:
        """Return the prompt. The tool's name is repeated in its last line, because the arguments may scroll away.

        Only known secrets are masked: users must see what they allow, whatever an argument is called.
        """
        shown, name = argument_lines(self._redact(call.args), _columns(), whole=whole), escape_invisible(spec.name)
        first = f"The model wants to call {name}, which may change something:"
        looks = skeleton(spec.name)
        lookalikes = [one for one in self._names() if one != spec.name and skeleton(one) == looks]
        warnings = [
            f"{MARK}this is not {escape_invisible(one)}, which looks like it: {spec.name!a}"
            for one in lookalikes[:MAX_LOOKALIKES]
        ]
        lines = [first, *marked(spec.name, _columns()), *warnings, *shown.lines]
        choices = CHOICES.format(name) + ("" if shown.is_whole else MORE)
        field = {"type": "string", "title": choices, "default": "n"}
        return ForPerson(key=call.id, message="\n".join(lines), schema={"properties": {"answer": field}})

    async def _answer(self, question: ForPerson) -> str:
        try:
            filled = await self._person.ask(question)
        except Declined:  # Ctrl-D
            return "n"
        return str(filled["answer"]).lower()


def _columns() -> int:
    try:
        return os.get_terminal_size(2).columns or USUAL_COLUMNS
    except OSError:
        return USUAL_COLUMNS
