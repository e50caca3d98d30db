"""`App.ask`: asks a model one question, with the tools, the API key and the session that belong to it.

    answer = await app.ask("What time is it?")                  # the whole answer
    async for event in app.ask("What time is it?"): …           # events as they happen; `.answer` afterwards

Toolsets are cached per registry snapshot; everything else is created per question. `AskModels` lists the models that
can be asked and the number of tokens that the tools add to each question.
"""

import asyncio
from base64 import b64decode
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Generator, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

from onetool.app.catalog import ToolCatalog
from onetool.app.database import AppDatabase
from onetool.app.describe import run_tool
from onetool.app.provider_keys import keys_for
from onetool.app.runtime import Runtime
from onetool.app.tool_backends import (
    ALLOWING,
    Approval,
    Approve,
    DirectBackend,
    NoToolsBackend,
    RunBackend,
    ToolCaller,
    ask_depth,
)
from onetool.ask.errors import AskError, NoModelError
from onetool.ask.events import Answer, Done, Event
from onetool.ask.loop import AskLoop, ToolBackend, run_user_call
from onetool.ask.messages import NO_TOOLS, File, Toolset, User
from onetool.ask.model_choice import (
    OLLAMA_SETTING,
    PROBE,
    ModelChoice,
    choose_model,
    chosen_provider,
    model_lister,
)
from onetool.ask.prompts import MUCH_TEXT, AskTask
from onetool.ask.providers import adapter
from onetool.ask.sessions import ChatSession, SessionStore
from onetool.core.call import ToolCall, ToolResult, new_id
from onetool.core.context import CallWatch
from onetool.core.errors import Need
from onetool.core.model_providers import PROVIDERS, key_name, key_need
from onetool.core.principal import allowed_by_both, lasting_owners
from onetool.core.registry import Snapshot
from onetool.http.files import FileContent

MENUS = ("direct", "run")
USER_SOURCE = "chat"  # the source of calls that a user makes in a session
MAX_TOOLSETS = 8  # per snapshot, for different allow-lists
MANY_TOOLS = 50  # tools: rendering them takes long enough to delay other tasks on the event loop
MAX_DEPTH = 2  # a question asked by a tool that a model calls, and one more inside it


class AskOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options for answering a question. Options that are None are taken from the config."""

    session: str | None = None  # None creates a new one
    new_session: bool = False
    with_tools: bool | None = None
    allowed: Collection[str] | None = None  # the tools for this turn and for later turns of the session
    within: Collection[str] | None = None  # an upper bound: what the caller may call
    provider: str | None = None
    model: str | None = None
    system: str | None = None
    temperature: float | None = None
    max_steps: int | None = None
    menu: str | None = None
    approve: Approve = "never"
    watch: CallWatch | None = None  # receives the calls that code makes
    files: Sequence[File] = ()
    stream: bool = True
    wait: float = 0.0  # seconds to wait for a running turn of the same session

    def __post_init__(self) -> None:
        """Raise ValueError for an invalid option, before anything starts."""
        if self.approve not in ("always", "never") and not callable(self.approve):
            raise ValueError(f'approve: expected "always", "never" or a function, got {self.approve!r}')
        if self.menu not in (None, *MENUS):
            raise ValueError(f"menu: expected {' or '.join(MENUS)}, got {self.menu!r}")
        if self.max_steps is not None and self.max_steps < 1:
            raise ValueError(f"max_steps: expected 1 or more, got {self.max_steps}")
        if not all(isinstance(file, File) for file in self.files):
            raise ValueError('files: expected File(name="notes.md", text="…"), from onetool.ask.messages')
        for key in ("allowed", "within"):
            if isinstance(names := getattr(self, key), str):
                raise ValueError(f"{key}: expected a list of names, got a string (write [{names!r}])")


class AskService:
    """The state shared by all questions of an app: the sessions, and the toolsets by allow-list."""

    def __init__(self, caller: ToolCaller, catalog: ToolCatalog, database: AppDatabase) -> None:
        self.caller = caller
        self._catalog = catalog
        self._database = database
        self._snapshot: Snapshot | None = None  # the snapshot of `_toolsets`
        self._toolsets: dict[frozenset[str] | None, Toolset] = {}

    def ask(self, prompt: str, options: AskOptions) -> "PendingAnswer":
        return PendingAnswer(self, prompt, options)

    @property
    def runtime(self) -> Runtime:
        return self.caller.runtime

    @property
    def sessions(self) -> SessionStore:
        """The sessions of the current caller."""
        return SessionStore(self._database.state(), owners=lasting_owners())

    async def user_call(
        self, name: str, args: Mapping[str, Any], on_session: Callable[[str], None], options: AskOptions
    ) -> ToolResult:
        """Call a tool for a user. The call needs no approval; the allow-list applies."""
        options = msgspec.structs.replace(options, menu="direct", approve="always")
        async with self.sessions.turn(options.session, new=options.new_session, wait=options.wait) as session:
            backend, allowed = await self.backend(options, session), self._allowed(options, session)
            call = ToolCall(new_id(), name, args, USER_SOURCE)

            async def run(call: ToolCall) -> ToolResult:
                if isinstance(backend, NoToolsBackend):
                    return await backend.call(call)
                return await self.caller.call(call, allowed)

            try:
                return await run_user_call(call, run, backend, session)
            finally:
                on_session(session.id)

    async def backend(self, options: AskOptions, session: ChatSession) -> ToolBackend:
        caller, catalog, config = self.caller, self._catalog, self.runtime.config
        if options.allowed is not None:  # patterns are kept, so that later questions also find tools added since
            session.allow(options.allowed)
        if not (config.ask.with_tools if options.with_tools is None else options.with_tools):
            return NoToolsBackend(caller, catalog)
        approval = Approval(options.approve, catalog)
        attached = partial(_attached_file, session)
        if (options.menu or config.ask.menu) == "run":
            await catalog.refresh()
            allowed = self._allowed(options, session)
            listing = run_tool(catalog, config, allowed)
            return RunBackend(caller, catalog, listing, allowed, approval, options.watch, attached)
        await catalog.wait_for_servers(None)  # servers that have not listed their tools yet
        await catalog.refresh()
        allowed = self._allowed(options, session)  # from the current tools, because it may have patterns
        return DirectBackend(caller, catalog, self._tools(allowed), allowed, approval, attached)

    def _allowed(self, options: AskOptions, session: ChatSession) -> Collection[str] | None:
        """Return the allowed tools: those of the question, else of the session, else of the config."""
        chosen = self.runtime.config.ask.tools if session.allowed is None else session.allowed
        return allowed_by_both(options.within, self._catalog.registry.allowing(chosen))

    def _tools(self, allowed: Collection[str] | None) -> Toolset:
        """Return the toolset of an allow-list, built and rendered once per snapshot."""
        snapshot, key = self._catalog.registry.snapshot(), None if allowed is None else frozenset(allowed)
        if self._snapshot is not snapshot or len(self._toolsets) >= MAX_TOOLSETS:
            self._snapshot, self._toolsets = snapshot, {}
        if key not in self._toolsets:
            self._toolsets[key] = Toolset(self._catalog.tools(allowed), others=snapshot.listed())
        return self._toolsets[key]

    def toolset(self, within: Collection[str] | None) -> Toolset:
        """Return the tools that a model would see now. Does not wait for servers."""
        config = self.runtime.config
        allowed = allowed_by_both(within, self._catalog.registry.allowing(config.ask.tools))
        if not config.ask.with_tools:
            return NO_TOOLS
        if config.ask.menu == "run":
            listing = run_tool(self._catalog, config, allowed)
            return RunBackend(self.caller, self._catalog, listing, allowed, Approval("never", self._catalog)).toolset
        return self._tools(allowed)

    def model_choice(self, options: AskOptions) -> ModelChoice:
        """Choose provider, model and address. The config's model and address apply only to its own provider."""
        ask = self.runtime.config.ask
        provider = (options.provider or "").lower()
        ours = provider in ("", ask.provider or ("openai" if ask.base_url else provider))
        return ModelChoice(
            provider=options.provider or ask.provider,
            model=options.model or (ask.model if ours else None),
            base_url=ask.base_url if ours else None,
            timeout=ask.timeout_s,
        )


def _attached_file(session: ChatSession, name: str) -> FileContent | None:
    """Return the latest file of this name that the user attached to the conversation."""
    asked = [message for message in session.messages if isinstance(message, User)]
    for file in (file for message in reversed(asked) for file in message.files if file.name == name):
        data = b64decode(file.data) if file.data is not None else (file.text or "").encode("utf-8", "replace")
        return FileContent(file.name, file.kind, data)
    return None


class PendingAnswer:
    """A question that can be asked once. `answer` is the answer so far, even after a failure."""

    def __init__(self, service: AskService, prompt: str, options: AskOptions) -> None:
        if not prompt.strip():
            raise ValueError("the prompt is empty: pass a question")
        self._service = service
        self._prompt = prompt
        self._options = options
        self._is_begun = False
        self.answer = Answer(answer=None, session_id=options.session)

    def __await__(self) -> Generator[Any, None, Answer]:
        return self._finished().__await__()

    def __aiter__(self) -> AsyncIterator[Event]:
        return self.events()

    async def events(self) -> AsyncGenerator[Event, None]:
        """Yield the events, like iterating over the answer, but as a generator that can be closed early."""
        if self._is_begun:
            raise RuntimeError("this question was already asked: call `ask` again for another answer")
        self._is_begun = True
        try:
            async with aclosing(self._events()) as events:
                async for event in events:
                    yield event
        except AskError as error:
            error_text = {"reason": error.reason, "message": str(error), "hints": error.hints}
            self.answer = msgspec.structs.replace(self.answer, error=error_text)
            raise

    async def _finished(self) -> Answer:
        async for _ in self.events():
            pass
        return self.answer

    async def _events(self) -> AsyncGenerator[Event, None]:
        service, options = self._service, self._options
        if ask_depth.get() >= MAX_DEPTH:
            raise AskError(f"questions to models are nested more than {MAX_DEPTH} levels deep", "bad_request")
        wanted, runtime = service.model_choice(options), service.runtime
        try:
            model = await choose_model(wanted, keys_for(runtime.config, wanted), runtime.client)
        except NoModelError:
            newest = await service.caller.look_again()
            if newest is runtime:
                raise
            wanted = service.model_choice(options)
            model = await choose_model(wanted, keys_for(newest.config, wanted), newest.client)
        size = len(self._prompt) + sum(len(file.text or "") for file in options.files)
        is_long = size > MUCH_TEXT  # searching long text for secrets would delay other tasks on the event loop
        task = await asyncio.to_thread(self._task) if is_long else self._task()
        async with service.sessions.turn(options.session, new=options.new_session, wait=options.wait) as session:
            backend = await service.backend(options, session)
            if len(backend.toolset.specs) > MANY_TOOLS:
                await asyncio.to_thread(backend.toolset.tokens, model.provider)
            loop = AskLoop(task, model, backend, session)
            try:
                async with aclosing(loop.events()) as events:
                    async for event in events:
                        if isinstance(event, Done):
                            self.answer = _with_hints(event.answer)
                            yield Done(answer=self.answer)
                        else:
                            yield event
            finally:
                if self.answer.answer is None:
                    self.answer = _with_hints(loop.answer())

    def _task(self) -> AskTask:
        options, ask = self._options, self._service.runtime.config.ask
        clean = self._service.runtime.redact  # attachments may contain our own secrets
        files = tuple(msgspec.structs.replace(one, text=clean(one.text)) for one in options.files)
        return AskTask(
            question=User(text=clean(self._prompt), files=files),
            system=clean(options.system if options.system is not None else ask.system),
            max_steps=options.max_steps or ask.max_steps,
            stream=options.stream,
            temperature=options.temperature,
            max_tokens=ask.max_tokens,
            context_tokens=ask.context_tokens,
        )


def _with_hints(answer: Answer) -> Answer:
    return msgspec.structs.replace(answer, hints=(ALLOWING,)) if answer.denied else answer


# Which models can be asked. The overview doesn't send requests to hosted providers: it has the models that the config
# names and the default model. A self-hosted server (Ollama, `ask.base_url`) is asked for its list.

LISTING_S = 5.0  # seconds that a hosted provider has to list its models


class KnownProvider(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A provider of models."""

    id: str
    models: Annotated[tuple[str, ...], Meta(description="The known models; others can be named as well.")]
    is_configured: Annotated[bool, Meta(description="Whether it can be used: its key is set, or its server responds.")]
    missing: Annotated[str | UnsetType, Meta(description="The secret or setting that is missing.")] = UNSET
    needs: Annotated[tuple[Need, ...] | UnsetType, Meta(description="Its key, if that is missing.")] = UNSET
    error: Annotated[str | UnsetType, Meta(description="Why its list of models could not be read.")] = UNSET


class ModelOverview(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The providers, with the defaults for a question that names no provider or model; null if there is no default."""

    provider: Annotated[str | None, Meta(description="The default provider; null if none is configured.")]
    model: str | None
    providers: tuple[KnownProvider, ...]
    tool_tokens: Annotated[int, Meta(description="About how many tokens the list of tools costs in each request.")]


class AskModels:
    """The models that a service can ask, by provider."""

    def __init__(self, service: AskService) -> None:
        self._service = service

    async def overview(self, within: Collection[str] | None) -> ModelOverview:
        """Return all providers, and the approximate size in tokens of the tools `within`; None means all tools."""
        service = self._service
        providers = await asyncio.gather(*map(self._provider, PROVIDERS))
        by_name = {one.id: one for one in providers}
        choice = service.model_choice(AskOptions())
        name = await asyncio.to_thread(lambda: chosen_provider(choice, keys_for(service.runtime.config, choice)))
        chosen, toolset = by_name[name or "ollama"], service.toolset(within)
        return ModelOverview(
            provider=chosen.id if chosen.is_configured else None,
            model=next(iter(chosen.models), None) if chosen.is_configured else None,
            providers=tuple(providers),
            tool_tokens=await asyncio.to_thread(toolset.tokens, chosen.id),
        )

    async def listed(self, name: str) -> KnownProvider:
        """Return a provider with the models that it lists itself. A hosted provider without a key is not asked."""
        known, choice = await self._provider(name), self._choice(name)
        if not known.is_configured or _is_self_hosted(name, choice):  # those were just asked
            return known
        try:
            models = (*known.models, *await self._names(choice, LISTING_S))
        except AskError as error:
            return msgspec.structs.replace(known, error=str(error))
        return msgspec.structs.replace(known, models=tuple(dict.fromkeys(models)))

    async def _provider(self, name: str) -> KnownProvider:
        choice, missing, error = self._choice(name), key_name(name), UNSET
        secret = keys_for(self._service.runtime.config, choice)
        is_there = has_key = bool(await asyncio.to_thread(secret, missing))
        models = [adapter(name).model]
        if _is_self_hosted(name, choice):
            is_there, models = True, []
            try:
                models = await self._names(choice, PROBE)
            except AskError as failure:
                lacks_key = failure.reason == "unauthorized" and not has_key
                is_there = choice.base_url is not None and not lacks_key
                missing = missing if lacks_key else OLLAMA_SETTING
                error = str(failure) if is_there else UNSET
        return KnownProvider(
            id=name,
            models=tuple(dict.fromkeys(filter(None, [choice.model, *models]))),
            is_configured=is_there,
            missing=UNSET if is_there else missing,
            needs=UNSET if is_there or missing == OLLAMA_SETTING else (key_need(name),),
            error=error,
        )

    def _choice(self, provider: str) -> ModelChoice:
        return self._service.model_choice(AskOptions(provider=provider))

    async def _names(self, choice: ModelChoice, seconds: float) -> list[str]:
        """List the models of a provider. Raises AskError."""
        secret = keys_for(self._service.runtime.config, choice)
        lister = await asyncio.to_thread(model_lister, choice, secret, self._service.runtime.client)
        return await lister.names(seconds)


def _is_self_hosted(name: str, choice: ModelChoice) -> bool:
    return name == "ollama" or choice.base_url is not None
