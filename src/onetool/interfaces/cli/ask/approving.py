"""A person says yes or no to a call, before it is made. Who says nothing says no."""

import asyncio
import os
from collections.abc import Callable, Iterable
from typing import Any

import click

from onetool.core.call import ToolCall
from onetool.core.caller import Declined, ForPerson
from onetool.core.failure import cut
from onetool.core.lookalike import skeleton, visible
from onetool.core.spec import ToolSpec
from onetool.interfaces.cli.ask.arguments import MARK, arguments, marked
from onetool.interfaces.cli.output import printable
from onetool.interfaces.cli.person import Person

YES, NO, ALWAYS, VIEW = ("y", "yes"), ("n", "no"), ("a", "always"), ("v", "view")
KNOWN = (*YES, *NO, *ALWAYS, *VIEW)
MOST_MISTAKES = 3  # answers that are none; then it is a no
CHOICES = "Run {}? y = yes, n = no, a = always for this tool, in this question"
MORE = ", v = view all of it"
MOST_SHOWN = 20  # characters of an answer that is none
MOST_TWINS = 3
USUAL_COLUMNS = 80


class Approver:
    """Asks the person for each call, one after the other. `names` are all tools that there are."""

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
        self._always: set[str] = set()
        self._turn = asyncio.Lock()

    async def __call__(self, call: ToolCall, spec: ToolSpec) -> bool:
        async with self._turn:
            return spec.name in self._always or await self._said_yes(call, spec)

    async def _said_yes(self, call: ToolCall, spec: ToolSpec) -> bool:
        self._before()
        said, mistakes = await self._answer(self._question(call, spec)), 0
        while said in VIEW or (said not in KNOWN and mistakes < MOST_MISTAKES):
            if said not in VIEW:
                mistakes += 1
                click.echo(f"{printable(cut(said, MOST_SHOWN))!r} is none of the answers.", err=True)
            said = await self._answer(self._question(call, spec, whole=said in VIEW))
        if said in ALWAYS:
            self._always.add(spec.name)
        return said in YES or said in ALWAYS

    def _question(self, call: ToolCall, spec: ToolSpec, whole: bool = False) -> ForPerson:
        """The tool's name stands in its last line, too: what is shown may be longer than the screen.

        Only what is known to be a secret is masked: what somebody allows, he has to see, whatever it is called.
        """
        shown, name = arguments(self._redact(call.args), _columns(), whole=whole), visible(spec.name)
        first = f"The model wants to call {name}, which may change something:"
        lines = [first, *marked(spec.name, _columns()), *self._twins(spec.name), *shown.lines]
        choices = CHOICES.format(name) + ("" if shown.is_whole else MORE)
        field = {"type": "string", "title": choices, "default": "n"}
        return ForPerson(key=call.id, message="\n".join(lines), schema={"properties": {"answer": field}})

    def _twins(self, name: str) -> list[str]:
        """A server may call two tools so that nobody can tell them apart."""
        looks = skeleton(name)
        others = [one for one in self._names() if one != name and skeleton(one) == looks]
        return [f"{MARK}this is not {visible(one)}, which looks like it: {name!a}" for one in others[:MOST_TWINS]]

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
