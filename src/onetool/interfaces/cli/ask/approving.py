"""A person says yes or no to a call, before it is made. Who says nothing says no."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from onetool.core.call import ToolCall
from onetool.core.caller import Declined, ForPerson
from onetool.core.secrecy import masked
from onetool.core.spec import ToolSpec
from onetool.interfaces.cli.ask.lines import in_full
from onetool.interfaces.cli.person import Person

YES, ALWAYS = ("y", "yes"), ("a", "always")
CHOICES = "Run {}? y = yes, n = no, a = always for this tool"  # … as long as this question lasts


class Approver:
    """Asks the person for each call, one after the other."""

    def __init__(self, person: Person, redact: Callable[[Any], Any], before: Callable[[], None]) -> None:
        self._person = person
        self._redact = redact
        self._before = before  # called when a question is about to be shown
        self._always: set[str] = set()
        self._turn = asyncio.Lock()

    async def __call__(self, call: ToolCall, spec: ToolSpec) -> bool:
        async with self._turn:
            return spec.name in self._always or await self._said_yes(call, spec)

    async def _said_yes(self, call: ToolCall, spec: ToolSpec) -> bool:
        self._before()
        _forget_typed()
        said = await self._answer(self._question(call, spec))
        if said in ALWAYS:
            self._always.add(spec.name)
        return said in YES or said in ALWAYS

    def _question(self, call: ToolCall, spec: ToolSpec) -> ForPerson:
        shown = self._redact(masked(call.args, spec.secrets))
        lines = [f"The model wants to call {spec.name}, which may change something:", *in_full(shown)]
        field = {"type": "string", "title": CHOICES.format(spec.name), "default": "n"}
        return ForPerson(key=call.id, message="\n".join(lines), schema={"properties": {"answer": field}})

    async def _answer(self, question: ForPerson) -> str:
        try:
            filled = await self._person.ask(question)
        except Declined:  # Ctrl-D
            return "n"
        return str(filled["answer"]).lower()


def _forget_typed() -> None:
    """What was typed before a question could be read is no answer to it."""
    with suppress(ImportError, OSError, ValueError):  # not every system has terminals of this kind
        import termios

        with suppress(termios.error):
            termios.tcflush(0, termios.TCIFLUSH)
