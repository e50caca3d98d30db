"""Answers one question: asks the model, runs its tool calls and returns the results, until there is an answer.

Events report the progress. Whatever happens (the connection is lost, the user presses Ctrl-C), the session has all
messages so far, and every call in it has a result.

Each call of a step gets one result, in the order of the calls. Calls run one after another, except that adjacent calls
of parallel or pure tools run at the same time. A call of a pure tool is not repeated in the same session.
"""

import asyncio
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing, suppress
from typing import Any, NamedTuple, Protocol

import msgspec
from msgspec import UNSET, UnsetType

from onetool.ask.errors import AskError, ModelError, SessionError
from onetool.ask.events import (
    Answer,
    CallEnded,
    CallStarted,
    Done,
    Event,
    Executed,
    Notice,
    Started,
    Text,
    Thinking,
    ToolProblem,
)
from onetool.ask.messages import (
    NO_ANSWER_TEXT,
    Assistant,
    Call,
    ModelReply,
    Result,
    TextDelta,
    ThoughtDelta,
    Toolset,
    Usage,
    UserCall,
    mark_as_data,
)
from onetool.ask.model_client import ModelClient
from onetool.ask.prompts import AskTask, PromptBuilder
from onetool.ask.sessions import ChatSession, call_key
from onetool.core.call import ToolCall, ToolError, ToolResult, new_id
from onetool.core.spec import ToolSpec

SOURCE = "ask"
MAX_CACHED_BYTES = 16 * 1024  # bytes of a value that is stored for reuse
MAX_EXCERPT = 200  # characters of invalid JSON
STOPPED = "The call was stopped before it ended. It is unknown what it has done."
NOT_STARTED = "The call was not made: the user had stopped the answer."

_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")


# The calls of one step


class CallOutcome(NamedTuple):
    """The result of a call, and the text that the model reads."""

    result: ToolResult
    content: str
    is_cached: bool = False


class ToolBackend(Protocol):
    """The tools of a model, and a way to call them. `call` never raises, whatever a tool or model does."""

    toolset: Toolset
    denied: list[str]  # tools that were not approved
    not_run: set[str]  # ids of calls that were not approved, or were abandoned before

    def spec(self, name: str) -> ToolSpec | None:
        """Return the tool with this name, if the model may call it."""
        ...

    async def call(self, call: ToolCall) -> ToolResult: ...

    async def content(self, result: ToolResult) -> str:
        """Return the text for the model: the whole result, or its beginning and how to read the rest."""
        ...

    def masked(self, name: str, args: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the arguments of a call with secret ones masked."""
        ...

    def clean(self, value: Any) -> Any:
        """Return the data with known secrets masked: a provider may repeat one."""
        ...

    def kept(self, name: str, args: Mapping[str, Any], value: Any) -> Any:
        """Return the result of a call without its secret arguments, which a tool may repeat."""
        ...


def with_ids(calls: Iterable[Call], taken: set[str]) -> tuple[Call, ...]:
    """Return the calls with ids that are unique in the session, since results are matched by id."""
    named: list[Call] = []
    for call in calls:
        id = call.id
        while not _ID.fullmatch(id) or id in taken:
            id = f"c{new_id().replace('-', '')[-8:]}"  # nine letters and digits, as Mistral requires
        taken.add(id)
        named.append(msgspec.structs.replace(call, id=id))
    return tuple(named)


def public_call(call: Call, backend: ToolBackend) -> ToolCall:
    """Return the call without secrets, for users and for the session."""
    return ToolCall(call.id, call.name, backend.clean(backend.masked(call.name, call.args)), SOURCE)


async def run_calls(
    calls: Sequence[Call], backend: ToolBackend, session: ChatSession
) -> AsyncGenerator[CallStarted | CallEnded, None]:
    """Run the calls, and write a result for each to the session, even if this is cancelled."""
    waiting = list(calls)
    tasks: dict[str, asyncio.Task[CallOutcome]] = {}  # by the id of the call
    try:
        for group in _groups(calls, backend):
            for call in group:
                yield CallStarted(call=public_call(call, backend))
            running: dict[str, asyncio.Task[CallOutcome]] = {}  # equal calls of a pure tool share one task
            for call in group:
                spec = backend.spec(call.name)
                is_pure = spec is not None and spec.pure and call.malformed is None
                key = (call_key(call.name, call.args) if is_pure else None) or call.id
                if key not in running:
                    running[key] = asyncio.create_task(_run_call(call, spec, backend, session))
                tasks[call.id] = running[key]
            for call in group:
                given = await tasks[call.id]
                session.append(_result_message(call, given, backend))
                waiting.pop(0)
                await session.settle()
                yield CallEnded(call=public_call(call, backend), result=given.result, is_cached=given.is_cached)
    finally:
        left = [task for task in tasks.values() if not task.done()]
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        for call in waiting:
            task = tasks.get(call.id)
            if task is not None and not task.cancelled() and task.exception() is None:
                session.append(_result_message(call, task.result(), backend))
            else:
                not_run = task is None or call.id in backend.not_run
                content = mark_as_data(NOT_STARTED if not_run else STOPPED)
                session.append(Result(call=call.id, name=call.name, ok=False, content=content, not_run=not_run))


async def run_user_call(
    call: ToolCall, run: Callable[[ToolCall], Awaitable[ToolResult]], backend: ToolBackend, session: ChatSession
) -> ToolResult:
    """Run a call made by the user. Write the call and its result to the session, even if this is cancelled."""
    args = backend.clean(backend.masked(call.name, call.args))
    try:
        result = await run(call)
        content = await backend.content(result.cleaned(_kept_by(call.name, call.args, backend)))
    except asyncio.CancelledError:
        session.append(UserCall(name=call.name, args=args, ok=False, content=mark_as_data(STOPPED)))
        raise
    session.append(UserCall(name=call.name, args=args, ok=result.ok, content=mark_as_data(content)))
    return result


def _kept_by(name: str, args: Mapping[str, Any], backend: ToolBackend) -> Callable[[Any], Any]:
    """Return a function that masks secrets in a call's result, for the session."""
    return lambda value: backend.kept(name, args, backend.clean(value))


def _groups(calls: Sequence[Call], backend: ToolBackend) -> Iterator[list[Call]]:
    """Yield groups of adjacent calls that may run at the same time. Other calls are alone."""
    together: list[Call] = []
    for call in calls:
        spec = backend.spec(call.name)
        if spec is None or spec.parallel or spec.pure:  # unknown tools run nothing
            together.append(call)
            continue
        if together:
            yield together
            together = []
        yield [call]
    if together:
        yield together


async def _run_call(call: Call, spec: ToolSpec | None, backend: ToolBackend, session: ChatSession) -> CallOutcome:
    meta = {"tool": call.name, "source": SOURCE, "duration_ms": 0.0}
    value = session.cached(call.name, call.args) if spec is not None and spec.pure else UNSET
    if (text := call.malformed) is not None:
        excerpt = text if len(text) <= MAX_EXCERPT else f"{text[:MAX_EXCERPT]}…"
        error = ToolError(
            code="invalid_args",
            message=f"the arguments of {call.name} are not a JSON object: {excerpt}",
            reason="malformed",
            hints=("send one complete JSON object with the arguments by name, and escape quotes in strings",),
        )
        result = ToolResult(ok=False, error=error, meta=meta)
    elif value is not UNSET:
        result = ToolResult(ok=True, data=value, meta={**meta, "cached": True})
    else:
        called = await backend.call(ToolCall(call.id, call.name, call.args, SOURCE))
        result = called.cleaned(_kept_by(call.name, call.args, backend))
    content = mark_as_data(await backend.content(result))
    return CallOutcome(result.plain(), content, "cached" in result.meta)


def _result_message(call: Call, given: CallOutcome, backend: ToolBackend) -> Result:
    spec, result = backend.spec(call.name), given.result
    value: Any | UnsetType = UNSET
    if spec is not None and spec.pure and result.ok and not given.is_cached:
        with suppress(TypeError, ValueError, OverflowError, RecursionError):
            if len(msgspec.json.encode(result.data)) <= MAX_CACHED_BYTES:
                value = result.data
    not_run = not result.ok and call.id in backend.not_run
    return Result(call=call.id, name=call.name, ok=result.ok, content=given.content, value=value, not_run=not_run)


# The loop

MAX_CALLS = 64  # per step; more would be the model's error, and fill its context window


class AskLoop:
    """The loop that answers one question. `answer()` returns the current state at any time."""

    def __init__(self, task: AskTask, model: ModelClient, backend: ToolBackend, session: ChatSession) -> None:
        self._task = task
        self._model = model
        self._backend = backend
        self._session = session
        self._prompts = PromptBuilder(task, model, backend.toolset, session)
        replies = (message for message in session.messages if isinstance(message, Assistant))
        self._taken = {call.id for reply in replies for call in reply.calls}  # ids of calls
        self._before = len(session.messages)
        self._calls: list[ToolCall] = []
        self._results: list[Executed] = []
        self._usage = Usage()
        self._steps = 0

    def answer(self, text: str | None = None, stop: str = "other", limit_reached: bool = False) -> Answer:
        """Return the answer so far. `text` is the model's answer, if there is one."""
        problems = (
            ToolProblem(tool=one.call.name, code=error.code, message=error.message)
            for one in self._results
            if (error := one.result.error) is not None
        )
        return Answer(
            answer=text,
            tool_calls=tuple(self._calls),
            tool_results=tuple(self._results),
            tool_error=next(problems, None),
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
        """Yield the events of the question. Raises AskError if there is no answer."""
        session, model = self._session, self._model
        yield Started(session_id=session.id, is_new=session.is_new, provider=model.provider, model=model.name)
        session.append(self._task.question)
        how, why = "stopped", ""
        try:
            await session.settle()  # another turn that goes on with the session is noticed before the model is asked
            async with aclosing(self._rounds()) as rounds:
                async for event in rounds:
                    if isinstance(event, Done):
                        how = "answered"
                        with suppress(SessionError):  # `end` raises the error, after the answer
                            await session.settle()  # store the answer before it is shown
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
                yield Notice(text=f"the limit of {most} steps is reached: asking the model for an answer without tools")
            reply = ModelReply()
            async with aclosing(self._ask_model(step, may_call=not is_last)) as events:
                async for event in events:
                    if isinstance(event, ModelReply):
                        reply = event
                    else:
                        yield event
            if reply.calls:
                self._calls += [public_call(call, self._backend) for call in reply.calls]
                await self._session.settle()  # store a call before its tool runs
                async with aclosing(run_calls(reply.calls, self._backend, self._session)) as running:
                    async for event in running:
                        if isinstance(event, CallEnded):
                            self._results.append(Executed(call=event.call, result=event.result))
                        yield event
            elif reply.text.strip():
                yield Done(answer=self.answer(reply.text, reply.stop, is_last))
                return
            elif is_last:
                yield Done(answer=self.answer(NO_ANSWER_TEXT.format(steps=most), reply.stop, True))
                return
            elif not tried_again and reply.stop in ("end", "other"):  # some models start a malformed call
                tried_again = True
                why = f" ({reply.why})" if reply.why else ""
                yield Notice(text=f"the model gave no answer{why}: asking once more")
            else:
                raise _no_answer_error(reply)

    async def _ask_model(self, step: int, may_call: bool) -> AsyncGenerator[Event | ModelReply, None]:
        """Ask the model once. Yield its text as it arrives, then the reply, after writing it to the session."""
        texts: list[str] = []  # streamed so far
        reply: ModelReply | None = None
        while reply is None:
            prompt = await self._prompts.build(may_call)
            if news := self._prompts.notice():
                yield Notice(text=news)
            try:
                async with aclosing(self._model.ask(prompt, self._task.stream)) as outputs:
                    async for output in outputs:
                        if isinstance(output, ModelReply):
                            reply = output
                        elif isinstance(output, TextDelta):
                            texts.append(output.text)
                            yield Text(text=output.text, step=step)
                        elif isinstance(output, ThoughtDelta):
                            yield Thinking(text=output.text, step=step)
                        else:
                            yield Notice(text=f"{output.why}; trying again in {output.seconds:.1f} s")
            except ModelError as error:
                if texts or not self._prompts.shorten(error):
                    raise
            finally:
                if texts and reply is None:
                    self._session.append(Assistant(text=self._backend.clean("".join(texts)), broken_off=True))
        written = self._write_reply(reply, may_call)
        if written.text and not texts:  # the reply wasn't streamed
            yield Text(text=written.text, step=step)
        if len(reply.calls) > MAX_CALLS:
            yield Notice(text=f"{len(reply.calls):,} calls in one step: only the first {MAX_CALLS} are run")
        yield written

    def _write_reply(self, reply: ModelReply, may_call: bool) -> ModelReply:
        """Write the reply to the session, with unique call ids, unless it is empty. Return it as written."""
        self._steps += 1
        self._usage += reply.usage
        is_allowed = may_call and reply.stop != "refused"
        calls = with_ids(reply.calls[:MAX_CALLS], self._taken) if is_allowed else ()
        text = self._backend.clean(reply.text)
        if text or calls:
            kept = tuple(  # without secrets
                msgspec.structs.replace(
                    call, args=public_call(call, self._backend).args, malformed=self._backend.clean(call.malformed)
                )
                for call in calls
            )
            self._session.append(Assistant(text=text, calls=kept, provider=self._model.provider, kept=reply.kept))
        return msgspec.structs.replace(reply, text=text, calls=calls)


def _no_answer_error(reply: ModelReply) -> AskError:
    why = f" ({reply.why})" if reply.why else ""
    if reply.stop == "refused":
        return AskError(f"the model refused to answer{why}", "refused", ["rephrase the question"])
    if reply.stop == "length":
        hint = "ask.max_tokens in the config sets how long an answer may be"
        return AskError("the model reached its token limit before an answer", "empty", [hint])
    return AskError(f"the model gave an empty answer{why}", "empty", ["ask again, or try another model: --model"])
