"""What happens while a question is being answered, as it happens. The answer goes to standard output, all else not.

On a terminal the answer is shown as it comes, with what the model says before it calls tools. A pipe gets the answer
alone, once it is known which of the model's words that is; the others go to standard error.

Models speak in pieces of a few letters, thousands in a second: they are kept as they come, and written several at once.
"""

import asyncio
import sys
from contextlib import suppress
from time import monotonic

import click

from onetool.ask.events import Answer, CallEnded, CallStarted, Done, Event, Notice, Started, Text, Thinking
from onetool.ask.sessions.names import LAST
from onetool.core.call import ToolCall
from onetool.interfaces.cli.ask.lines import called, outcome, readable, tokens_used
from onetool.interfaces.cli.output import counted, printable, stdout, styled
from onetool.interfaces.cli.person import can_be_asked

PAUSE = 0.02  # seconds between two writes of what a model says


class Screen:
    """A person's view of it, or a log's. `tells_denied`: whether somebody still has to hear what was not let run."""

    def __init__(self, tells_denied: bool = True) -> None:
        self._tells_denied = tells_denied
        self._is_live = stdout().isatty()
        self._is_watched = sys.stderr.isatty()
        self._step = 0
        self._said: list[str] = []  # by the model, in this step
        self._unshown: list[str] = []  # the end of that, which is to be written
        self._written = 0.0  # when something was
        self._later: asyncio.TimerHandle | None = None
        self._in_line = False  # the last thing that it said did not end its line
        self._open: str | None = None  # the call whose line waits for its end
        self._thinks = False

    def show(self, event: Event) -> None:
        match event:
            case Started():  # who it is, is told at the end
                pass
            case Text():
                self._text(event)
            case Thinking():
                self._thinking(event.step)
            case CallStarted():
                self._started(event.call)
            case CallEnded():
                self._ended(event)
            case Notice():
                self.say(event.text)
            case Done():
                self._finish(event.answer)

    def say(self, text: str, colour: str | None = None) -> None:
        """A line on standard error."""
        self.break_line()
        self._err(printable(text), fg=colour, dim=colour is None)

    def break_line(self) -> None:
        """Before somebody else writes: whatever stands in this line is ended."""
        self._catch_up()
        if self._in_line:
            self._out("\n")
        if self._open is not None:
            self._open = None
            click.echo(err=True)

    # The model's words

    def _text(self, event: Text) -> None:
        self._next(event.step)
        self._said.append(event.text)
        if self._is_live:
            if self._open is not None:
                self.break_line()
            self._unshown.append(event.text)
            self._show_soon()

    def _show_soon(self) -> None:
        """At once, if nothing has been written for a moment; else when that is over."""
        if monotonic() >= self._written + PAUSE:
            self._catch_up()
        elif self._later is None:
            self._later = self._written_later()

    def _written_later(self) -> asyncio.TimerHandle | None:
        try:
            return asyncio.get_running_loop().call_later(PAUSE, self._catch_up_quietly)
        except RuntimeError:  # nobody is there to do it later
            self._catch_up()
            return None

    def _catch_up_quietly(self) -> None:
        with suppress(OSError):  # what comes next fails as well, where somebody is told
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

    def _thinking(self, step: int) -> None:
        self._next(step)
        if self._is_watched and not self._thinks:
            self._thinks = True
            self.say("thinking …")

    def _next(self, step: int) -> None:
        if step != self._step:
            self._step, self._said, self._thinks = step, [], False

    def _out(self, text: str) -> None:
        """What the encoding of this output lacks is shown as `?`: an answer is not cut for one letter."""
        stream = stdout()
        encoding = stream.encoding or "utf-8"
        stream.write(text.encode(encoding, "replace").decode(encoding))
        stream.flush()
        if text:
            self._in_line = self._is_live and not text.endswith("\n")

    # Calls

    def _started(self, call: ToolCall) -> None:
        self._told_before()
        self.break_line()
        if self._is_watched:  # a log gets the whole line at the end
            self._err(called(call), nl=False, fg="cyan")
            self._open = call.id

    def _told_before(self) -> None:
        """What was said before the call is not the answer, and a pipe does not get it."""
        said = "".join(self._said).strip()
        if said and not self._is_live:
            self.say(readable(said))
        self._said = []

    def _ended(self, event: CallEnded) -> None:
        how, is_well = outcome(event.result, event.is_cached)
        if self._open == event.call.id:
            self._open = None
        else:
            self.break_line()
            self._err(called(event.call), nl=False, fg="cyan")
        self._err(f" → {how}", fg="green" if is_well else "red")

    # The end

    def _finish(self, answer: Answer) -> None:
        self.break_line()
        if not (self._is_live and "".join(self._said).strip()):  # then it has not been shown yet
            text = answer.answer or ""
            shown = readable(text) if self._is_live else text
            self._out(shown if shown.endswith("\n") else f"{shown}\n")
        if answer.stop == "length":
            self.say(
                "The answer is cut off: the model had no room for more. ask.max_tokens in the config says how long."
            )
        if answer.denied and self._tells_denied:
            asks = ("--approve ask asks you here, call by call",) if can_be_asked() else ()
            for line in (f"Not run: {', '.join(answer.denied)}", *asks, *answer.hints):
                self.say(line, "yellow")
        if self._is_watched:
            self._sum_up(answer)

    def _sum_up(self, answer: Answer) -> None:
        used = tokens_used(answer.usage.input, answer.usage.output)
        facts = [f"{answer.model} ({answer.provider})", counted(answer.steps, "step"), used]
        self.say(f"{' · '.join(filter(None, facts))} · go on: {go_on(answer.session_id or LAST)}")

    def _err(self, text: str, nl: bool = True, fg: str | None = None, dim: bool = False) -> None:
        click.echo(styled(text, fg=fg, dim=dim or None) if self._is_watched else text, err=True, nl=nl)


def go_on(session: str) -> str:
    return printable(f'onetool ask --session {session} "…"')
