"""What a model is given at each step: the instructions, the tools, and as much of what was said as it takes."""

import asyncio

import msgspec

from onetool.ask.errors import AskError, ModelError
from onetool.ask.messages import Message, Prompt, Result, User
from onetool.ask.sessions import Session
from onetool.ask.talking import Model
from onetool.ask.toolset import Toolset
from onetool.ask.window import answered, fit, window_of
from onetool.ask.words import LAST, system
from onetool.core.tokens import tokens

MUCH = 100_000  # characters: counting their tokens takes some ten milliseconds
MOST_SHORTER = 2  # times that a prompt is made shorter, when the model says that it is too long
ROOM = 32_000  # tokens that are left for an answer, where nobody says how long it may be …
SHARE = 8  # … and where that is less, this part of the window


def size_of(message: Message) -> int:
    """About how many characters it has."""
    if isinstance(message, Result):
        return len(message.content)
    if isinstance(message, User):
        return len(message.text) + sum(len(file.text or "") for file in message.files)
    return len(message.text) + sum(len(str(call.args)) for call in message.calls)


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """A question, and how it is to be answered."""

    question: User
    system: str | None = None
    max_steps: int = 8
    stream: bool = True
    temperature: float | None = None
    max_tokens: int | None = None
    context_tokens: int | None = None


class Prompts:
    """Of one question. The window is what the config, or the model's name, says, until the model says otherwise."""

    def __init__(self, task: Task, model: Model, toolset: Toolset, session: Session) -> None:
        self._task = task
        self._model = model
        self._toolset = toolset
        self._session = session
        self._system = system(task.system, bool(toolset))
        self._window = task.context_tokens or window_of(model.provider, model.name)
        self._shorter = 0
        self._left_out = self._told = 0  # messages

    async def make(self, may_call: bool) -> Prompt:
        """The next one. Where there is much to count it is counted in a thread: others wait for the loop."""
        if sum(map(size_of, self._session.messages)) < MUCH:
            return self._made(may_call)
        return await asyncio.to_thread(self._made, may_call)

    def news(self) -> str | None:
        """What the person should know about the last one, once."""
        if self._left_out <= self._told:
            return None
        self._told = self._left_out
        return f"{self._left_out} older messages are left out: the model takes {self._window:,} tokens"

    def shorten(self, error: ModelError) -> bool:
        """Have the next ones shorter, if that is what is wrong; whether it is worth a try."""
        if error.reason != "too_long" or self._shorter == MOST_SHORTER:
            return False
        self._shorter += 1
        self._window = min(error.window or self._window // 2, self._window * 4 // 5)
        return True

    def _made(self, may_call: bool) -> Prompt:
        task, model = self._task, self._model
        shown = self._toolset.tokens(model.provider) if may_call else 0
        if shown > self._window * 3 // 4:
            raise self._too_many_tools(shown)
        note = () if may_call else (User(text=LAST),)  # for this once: it is nothing that the person said
        room = min(task.max_tokens or ROOM, self._window // SHARE)
        other = tokens(self._system) + shown + sum(tokens(one.text) for one in note)
        fitting, self._left_out, used = fit(answered(self._session.messages), self._window, other=other + room)
        return Prompt(
            model=model.name,
            messages=(*fitting, *note),
            system=self._system,
            tools=self._toolset,
            may_call=may_call,
            temperature=task.temperature,
            max_tokens=task.max_tokens,
            context_tokens=task.context_tokens,
            tokens=used + other,
        )

    def _too_many_tools(self, shown: int) -> AskError:
        count, takes = len(self._toolset.specs), f"{self._model.name} takes {self._window:,} in all"
        return AskError(
            f"{count} tools take about {shown:,} tokens, and {takes}",
            "too_long",
            [
                "--menu run shows the model one tool, whose code reaches all of them",
                "--tool-allow NAMES shows it only these",
                "ask.context_tokens in the config says how many tokens the model takes, where that is more",
            ],
        )
