"""One question: ask the model, carry out what it calls, give it the results, until there is an answer.

The course of it is told as events. Whatever happens on the way (the model is cut off, somebody presses Ctrl-C), what
was said and done until then is in the session, and every call in there has its result.
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing

import msgspec

from onetool.ask.errors import AskError, ModelError
from onetool.ask.messages import (
    Answer,
    Assistant,
    Call,
    CallEnded,
    Done,
    Event,
    Executed,
    ModelReply,
    Notice,
    Result,
    Started,
    Text,
    TextDelta,
    Thinking,
    ThoughtDelta,
    ToolProblem,
    Usage,
)
from onetool.ask.model_client import ModelClient
from onetool.ask.prompt_texts import NO_ANSWER_TEXT
from onetool.ask.prompts import AskTask, PromptBuilder
from onetool.ask.sessions import ChatSession
from onetool.ask.tool_calls import ToolBackend, public_call, run_calls, with_ids
from onetool.core.call import ToolCall

MOST_CALLS = 64  # of one step; a model that wants more has lost its way, and its history would fill its window


class AskLoop:
    """Answers one question. `answer()` gives what there is so far, at any time."""

    def __init__(self, task: AskTask, model: ModelClient, backend: ToolBackend, session: ChatSession) -> None:
        self._task = task
        self._model = model
        self._backend = backend
        self._session = session
        self._prompts = PromptBuilder(task, model, backend.toolset, session)
        self._taken = {call.id for said in session.messages if isinstance(said, Assistant) for call in said.calls}
        self._before = len(session.messages)
        self._calls: list[ToolCall] = []
        self._results: list[Executed] = []
        self._usage = Usage()
        self._steps = 0

    def answer(self, text: str | None = None, stop: str = "other", limit_reached: bool = False) -> Answer:
        """The answer so far. Without text there is none."""
        failed = next((one for one in self._results if one.result.error is not None), None)
        return Answer(
            answer=text,
            tool_calls=tuple(self._calls),
            tool_results=tuple(self._results),
            tool_error=None if failed is None else _tool_problem(failed),
            session_context_updated=any(isinstance(one, Result) for one in self._session.messages[self._before :]),
            session_id=self._session.id,
            provider=self._model.provider,
            model=self._model.name,
            usage=self._usage,
            steps=self._steps,
            stop=stop,
            limit_reached=limit_reached,
            denied=tuple(dict.fromkeys(self._backend.denied)),
        )

    async def events(self) -> AsyncGenerator[Event, None]:
        """All events of the question. Raises AskError if there is no answer."""
        session, model = self._session, self._model
        yield Started(session_id=session.id, is_new=session.is_new, provider=model.provider, model=model.name)
        session.append(self._task.question)
        how, why = "stopped", ""
        try:
            async with aclosing(self._rounds()) as rounds:
                async for event in rounds:
                    how = "answered" if isinstance(event, Done) else how
                    yield event
        except AskError as error:
            how, why = "failed", self._backend.clean(str(error))
            raise
        finally:
            session.end(model.provider, model.name, self._usage, self._steps, how, why)

    async def _rounds(self) -> AsyncGenerator[Event, None]:
        most = self._task.max_steps
        tried_again = False
        for step in range(1, most + 2):
            is_last = step > most
            if is_last:
                yield Notice(
                    text=f"the limit of {most} steps is reached: the model is asked for an answer without tools"
                )
            reply = ModelReply()
            async with aclosing(self._ask_model(step, may_call=not is_last)) as said:
                async for event in said:
                    if isinstance(event, ModelReply):
                        reply = event
                    else:
                        yield event
            if reply.calls:
                async with aclosing(self._run_calls(reply)) as called:
                    async for event in called:
                        yield event
            elif not is_last and not tried_again and _is_worth_retrying(reply):
                tried_again = True
                yield Notice(text=f"the model gave no answer{_why(reply)}: asking once more")
            else:
                yield Done(answer=self._final(reply, is_last))
                return

    # The model's part

    async def _ask_model(self, step: int, may_call: bool) -> AsyncGenerator[Event | ModelReply, None]:
        """One step of the model: yields its text as it comes, then the reply, which is written to the session."""
        said: list[str] = []
        reply: ModelReply | None = None
        while reply is None:
            prompt = await self._prompts.build(may_call)
            if news := self._prompts.notice():
                yield Notice(text=news)
            try:
                async with aclosing(self._model.ask(prompt, self._task.stream)) as heard:
                    async for one in heard:
                        if isinstance(one, ModelReply):
                            reply = one
                        elif isinstance(one, TextDelta):
                            said.append(one.text)
                            yield Text(text=one.text, step=step)
                        elif isinstance(one, ThoughtDelta):
                            yield Thinking(text=one.text, step=step)
                        else:
                            yield Notice(text=f"{one.why}; trying again in {one.seconds:.1f} s")
            except ModelError as error:
                if said or not self._prompts.shorten(error):
                    raise
            finally:
                if said and reply is None:
                    self._session.append(Assistant(text=self._backend.clean("".join(said)), broken_off=True))
        written = self._write_reply(reply, may_call)
        if written.text and not said:  # it came in one piece
            yield Text(text=written.text, step=step)
        if len(reply.calls) > MOST_CALLS:
            yield Notice(
                text=f"the model made {len(reply.calls):,} calls in one step: the first {MOST_CALLS} are taken"
            )
        yield written

    def _write_reply(self, reply: ModelReply, may_call: bool) -> ModelReply:
        """Write the reply to the session, with unique ids of calls. An empty reply is not written."""
        self._steps += 1
        self._usage += reply.usage
        takes = may_call and reply.stop != "refused"
        calls = with_ids(reply.calls[:MOST_CALLS], self._taken) if takes else ()
        text = self._backend.clean(reply.text)
        if text or calls:
            kept = tuple(map(self._without_secrets, calls))
            said = Assistant(text=text, calls=kept, provider=self._model.provider, kept=reply.kept)
            self._session.append(said)
        return msgspec.structs.replace(reply, text=text, calls=calls)

    def _without_secrets(self, call: Call) -> Call:
        """The call without secrets, for the session."""
        return msgspec.structs.replace(
            call, args=public_call(call, self._backend).args, malformed=self._backend.clean(call.malformed)
        )

    def _final(self, reply: ModelReply, limit_reached: bool) -> Answer:
        text = reply.text
        if text.strip():
            return self.answer(text, reply.stop, limit_reached)
        if limit_reached:
            return self.answer(NO_ANSWER_TEXT.format(steps=self._task.max_steps), reply.stop, True)
        raise _no_answer_error(reply)

    # The tools' part

    async def _run_calls(self, reply: ModelReply) -> AsyncGenerator[Event, None]:
        self._calls += [public_call(call, self._backend) for call in reply.calls]
        await self._session.settle()  # no tool runs whose call might be forgotten
        async with aclosing(run_calls(reply.calls, self._backend, self._session)) as running:
            async for event in running:
                if isinstance(event, CallEnded):
                    self._results.append(Executed(call=event.call, result=event.result))
                yield event


def _tool_problem(executed: Executed) -> ToolProblem:
    error = executed.result.error
    assert error is not None  # noqa: S101 - for the type checker: only failed ones come here
    return ToolProblem(tool=executed.call.name, code=error.code, message=error.message)


def _is_worth_retrying(reply: ModelReply) -> bool:
    """Whether an empty reply is worth a retry: some models say nothing, or begin a malformed call."""
    return not reply.text.strip() and reply.stop in ("end", "other")


def _why(reply: ModelReply) -> str:
    return f" ({reply.why})" if reply.why else ""


def _no_answer_error(reply: ModelReply) -> AskError:
    why = _why(reply)
    if reply.stop == "refused":
        return AskError(f"the model would not answer{why}", "refused", ["put the question in other words"])
    if reply.stop == "length":
        hint = "ask.max_tokens in the config says how long an answer may be"
        return AskError("the model had no room left for an answer", "empty", [hint])
    return AskError(f"the model gave an empty answer{why}", "empty", ["ask again, or try another model: --model"])
