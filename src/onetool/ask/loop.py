"""One question: ask the model, carry out what it calls, give it the results, until there is an answer.

The course of it is told as events. Whatever happens on the way (the model is cut off, somebody presses Ctrl-C), what
was said and done until then is in the session, and every call in there has its result.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

import msgspec

from onetool.ask.calls import Hands, carried_out, shown, with_ids
from onetool.ask.errors import AskError, ModelError
from onetool.ask.events import (
    Answer,
    CallEnded,
    Done,
    Event,
    Executed,
    Notice,
    Started,
    Text,
    Thinking,
    ToolProblem,
)
from onetool.ask.messages import Assistant, Call, Prompt, Reply, Result, Said, Thought, Usage, User
from onetool.ask.sessions import Session
from onetool.ask.talking import Model
from onetool.ask.window import fit, window_of
from onetool.ask.words import LAST, LATE, system
from onetool.core.call import ToolCall
from onetool.core.tokens import tokens

MOST_CALLS = 64  # of one step; a model that wants more has lost its way, and its history would fill its window
MUCH = 100_000  # characters: some ten milliseconds
MOST_SHORTER = 2  # times that a prompt is made shorter, when the model says that it is too long
ROOM = 32_000  # tokens that are left for an answer, where nobody says how long it may be …
SHARE = 8  # … and where that is less, this part of the window


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """A question, and how it is to be answered."""

    question: User
    system: str | None = None
    max_steps: int = 8
    stream: bool = True
    temperature: float | None = None
    max_tokens: int | None = None
    context_tokens: int | None = None


class Loop:
    """Answers one question. `answer` has what there is of it, at any time."""

    def __init__(self, task: Task, model: Model, hands: Hands, session: Session) -> None:
        self._task = task
        self._model = model
        self._hands = hands
        self._session = session
        self._system = system(task.system, bool(hands.toolset))
        self._window = task.context_tokens or window_of(model.provider, model.name)
        self._taken = {call.id for said in session.messages if isinstance(said, Assistant) for call in said.calls}
        self._before = len(session.messages)
        self._left_out = 0
        self._tried_again = False
        self._calls: list[ToolCall] = []
        self._results: list[Executed] = []
        self._usage = Usage()
        self._steps = 0

    def answer(self, text: str | None = None, stop: str = "other", limit_reached: bool = False) -> Answer:
        """What there is of it; without a text it is none."""
        failed = next((one for one in self._results if one.result.error is not None), None)
        return Answer(
            answer=text,
            tool_calls=tuple(self._calls),
            tool_results=tuple(self._results),
            tool_error=None if failed is None else _problem(failed),
            session_context_updated=any(isinstance(one, Result) for one in self._session.messages[self._before :]),
            session_id=self._session.id,
            provider=self._model.provider,
            model=self._model.name,
            usage=self._usage,
            steps=self._steps,
            stop=stop,
            limit_reached=limit_reached,
            denied=tuple(dict.fromkeys(self._hands.denied)),
        )

    async def events(self) -> AsyncGenerator[Event, None]:
        """All that happens. AskError where no answer comes of it."""
        session, model = self._session, self._model
        yield Started(session_id=session.id, is_new=session.is_new, provider=model.provider, model=model.name)
        session.append(self._task.question)
        try:
            async with aclosing(self._rounds()) as rounds:
                async for event in rounds:
                    yield event
        finally:
            session.end(model.provider, model.name, self._usage, self._steps)

    async def _rounds(self) -> AsyncGenerator[Event, None]:
        most = self._task.max_steps
        for step in range(1, most + 2):
            is_last = step > most
            if is_last:
                yield Notice(
                    text=f"the limit of {most} steps is reached: the model is asked for an answer without tools"
                )
            reply = Reply()
            async with aclosing(self._said(step, may_call=not is_last)) as said:
                async for event in said:
                    if isinstance(event, Reply):
                        reply = event
                    else:
                        yield event
            if reply.calls:
                async with aclosing(self._called(reply)) as called:
                    async for event in called:
                        yield event
            elif not is_last and self._is_worth_another_try(reply):
                yield Notice(text=f"the model gave no answer{_why(reply)}: asking once more")
            else:
                yield Done(answer=self._final(reply, is_last))
                return

    # The model's part

    async def _said(self, step: int, may_call: bool) -> AsyncGenerator[Event | Reply, None]:
        """One step of the model: what it says as it comes, and then its reply, which is in the session by then."""
        said: list[str] = []
        shorter = 0
        reply: Reply | None = None
        while reply is None:
            prompt, left_out = await self._counted(may_call)
            if left_out > self._left_out:
                self._left_out = left_out
                yield Notice(text=f"{left_out} older messages are left out: the model takes {self._window:,} tokens")
            try:
                async with aclosing(self._model.ask(prompt, self._task.stream)) as heard:
                    async for one in heard:
                        if isinstance(one, Reply):
                            reply = one
                        elif isinstance(one, Said):
                            said.append(one.text)
                            yield Text(text=one.text, step=step)
                        elif isinstance(one, Thought):
                            yield Thinking(text=one.text, step=step)
                        else:
                            yield Notice(text=f"{one.why}; trying again in {one.seconds:.1f} s")
            except BaseException as error:
                if said:
                    self._session.append(Assistant(text=self._hands.clean("".join(said)), broken_off=True))
                if said or shorter == MOST_SHORTER or not isinstance(error, ModelError) or error.reason != "too_long":
                    raise
                shorter += 1
                self._window = min(error.window or self._window // 2, self._window * 4 // 5)
        written = self._written(reply, may_call)
        if reply.text and not said:  # it came in one piece
            yield Text(text=reply.text, step=step)
        if len(reply.calls) > MOST_CALLS:
            yield Notice(
                text=f"the model made {len(reply.calls):,} calls in one step: the first {MOST_CALLS} are taken"
            )
        yield written

    async def _counted(self, may_call: bool) -> tuple[Prompt, int]:
        """The prompt. Counting the tokens of much text takes a while, and others wait for the loop."""
        if sum(len(getattr(one, "content", "") or getattr(one, "text", "")) for one in self._session.messages) < MUCH:
            return self._prompt(may_call)
        return await asyncio.to_thread(self._prompt, may_call)

    def _prompt(self, may_call: bool) -> tuple[Prompt, int]:
        """What the model is given, and how many messages had to be left out of it."""
        task, toolset = self._task, self._hands.toolset
        shown = toolset.tokens(self._model.provider)
        if shown > self._window * 3 // 4:
            raise _too_many_tools(len(toolset.specs), shown, self._window, self._model.name)
        note = () if may_call else (User(text=LAST),)  # for this once: it is nothing that the person said
        room = min(task.max_tokens or ROOM, self._window // SHARE)
        other = tokens(self._system) + shown + sum(tokens(one.text) for one in note)
        fitting, left_out, used = fit(self._session.messages, self._window, other=other + room)
        prompt = Prompt(
            model=self._model.name,
            messages=(*fitting, *note),
            tokens=used + other,
            system=self._system,
            tools=toolset,
            may_call=may_call,
            temperature=task.temperature,
            max_tokens=task.max_tokens,
            context_tokens=task.context_tokens,
        )
        return prompt, left_out

    def _written(self, reply: Reply, may_call: bool) -> Reply:
        """The reply as it stands in the session, its calls with ids of their own. An empty one does not stand there."""
        self._steps += 1
        self._usage += reply.usage
        takes = may_call and reply.stop != "refused"
        calls = with_ids(reply.calls[:MOST_CALLS], self._taken) if takes else ()
        text = self._hands.clean(reply.text)
        if text or calls:
            kept = tuple(map(self._to_keep, calls))
            said = Assistant(text=text, calls=kept, provider=self._model.provider, kept=reply.kept)
            self._session.append(said)
        return msgspec.structs.replace(reply, text=text, calls=calls)

    def _to_keep(self, call: Call) -> Call:
        """Without secrets: what it is called with is nobody's business afterwards, not the model's either."""
        return msgspec.structs.replace(
            call, args=shown(call, self._hands).args, malformed=self._hands.clean(call.malformed)
        )

    def _is_worth_another_try(self, reply: Reply) -> bool:
        """Some models say nothing, or begin a call that their own provider can't read: once, that may be chance."""
        is_first, self._tried_again = not self._tried_again, True
        return is_first and not reply.text.strip() and reply.stop in ("end", "other")

    def _final(self, reply: Reply, limit_reached: bool) -> Answer:
        text = reply.text
        if text.strip():
            return self.answer(text, reply.stop, limit_reached)
        if limit_reached:
            return self.answer(LATE.format(steps=self._task.max_steps), reply.stop, True)
        raise _no_answer(reply)

    # The tools' part

    async def _called(self, reply: Reply) -> AsyncGenerator[Event, None]:
        self._calls += [shown(call, self._hands) for call in reply.calls]
        async with aclosing(carried_out(reply.calls, self._hands, self._session)) as under_way:
            async for event in under_way:
                if isinstance(event, CallEnded):
                    self._results.append(Executed(call=event.call, result=event.result))
                yield event


def _problem(executed: Executed) -> ToolProblem:
    error = executed.result.error
    assert error is not None  # noqa: S101 - for the type checker: only failed ones come here
    return ToolProblem(tool=executed.call.name, code=error.code, message=error.message)


def _too_many_tools(count: int, shown: int, window: int, model: str) -> AskError:
    return AskError(
        f"{count} tools take about {shown:,} tokens, and {model} takes {window:,} in all",
        "too_long",
        [
            "--menu run shows the model one tool, whose code reaches all of them",
            "--tool-allow NAMES shows it only these",
            "ask.context_tokens in the config says how many tokens the model takes, where that is more",
        ],
    )


def _why(reply: Reply) -> str:
    return f" ({reply.why})" if reply.why else ""


def _no_answer(reply: Reply) -> AskError:
    why = _why(reply)
    if reply.stop == "refused":
        return AskError(f"the model would not answer{why}", "refused", ["put the question in other words"])
    if reply.stop == "length":
        hint = "ask.max_tokens in the config says how long an answer may be"
        return AskError("the model had no room left for an answer", "empty", [hint])
    return AskError(f"the model gave an empty answer{why}", "empty", ["ask again, or try another model: --model"])
