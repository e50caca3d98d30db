"""`BundleService` is what REST and the command line do with bundles: stored and built-in ones, by the same rules.

It takes data as it came and gives data to show; what is refused raises a BundleError. All methods but `invoke` block.
`StorePoller` is the thread that regularly looks for files that were edited by hand.
"""

import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from threading import Event, Thread
from time import perf_counter
from typing import Any, NamedTuple, Protocol, TypeVar

from onetool.core.call import ToolCall, ToolResult
from onetool.core.call import new_id as call_id
from onetool.core.context import CallEvent, Progress
from onetool.core.spec import ToolSpec
from onetool.http.definition import below
from onetool.sources.bundles.errors import ForbiddenError, InvalidError, NotFoundError, RateLimitError
from onetool.sources.bundles.loading import BundleTools
from onetool.sources.bundles.model import Bundle, Tool, built_in_id, function_of, shown
from onetool.sources.bundles.names import check_id, check_slug, check_version
from onetool.sources.bundles.store import (
    EVERYTHING,
    AllowedOnly,
    BundleStore,
    ETag,
    Rank,
    SearchHit,
    Visibility,
    tag_of,
)
from onetool.sources.bundles.tool_factory import ToolFactory
from onetool.sources.bundles.validation import read_bundle, read_tool

T = TypeVar("T")
Shown = dict[str, Any]
MOST_READY = 10_000  # tools that are kept ready to be invoked by their ids
LIMITED = "rate_limited"
OFF = "-off"


class Execute(Protocol):
    """Runs one tool: the executor's way in."""

    async def __call__(
        self, call: ToolCall, spec: ToolSpec, allowed: Collection[str] | None, progress: Progress | None
    ) -> ToolResult: ...


class _Ready(NamedTuple):
    tool: Tool
    spec: ToolSpec


class BundleService:
    """`function` gives a registered function by its name; `execute` runs a spec; `built_in` are the built-in tools.

    `refresh` reloads the registry if tools have changed.
    """

    def __init__(
        self,
        store: BundleStore,
        factory: ToolFactory,
        execute: Execute,
        function: Callable[[str], ToolSpec | None],
        built_in: Iterable[str],
        refresh: Callable[[], Awaitable[None]],
    ) -> None:
        self.store = store
        self._factory = factory
        self._execute = execute
        self._function = function
        self._refresh = refresh
        self._built_in = {name: built_in_id(name) for name in built_in}
        self.loading = BundleTools(store, factory)
        self._ready: dict[tuple[str, str, str], _Ready] = {}
        self._ready_since: tuple[int, int] | None = None  # the store's state, and the load, that these are of

    # Bundles

    def put_bundle(
        self, id: str, data: Any, match: ETag | None = None, create_only: bool = False
    ) -> tuple[Shown, ETag, bool]:
        """Create or replace; also the way back for one that was deleted."""
        content = read_bundle(data)
        check_slug(content.slug)
        bundle, is_new = self.changed(self.store.put_bundle(check_id(id, None), content, match, create_only))
        return self._shown_bundle(bundle), tag_of(bundle), is_new

    def patch_bundle(self, id: str, data: Any, match: ETag | None = None) -> tuple[Shown, ETag]:
        id = check_id(id, None)
        is_enabled = self._switch(data, self.store.bundle(id))
        bundle = self.changed(self.store.patch_bundle(id, is_enabled, match))
        return self._shown_bundle(bundle), tag_of(bundle)

    def delete_bundle(self, id: str, match: ETag | None = None) -> None:
        self.changed(self.store.delete_bundle(check_id(id, None), match))

    def get_bundle(self, id: str, visibility: Visibility = EVERYTHING) -> tuple[Shown, ETag]:
        bundle = self._bundle(check_id(id, None), visibility)
        return self._shown_bundle(bundle), tag_of(bundle)

    def bundles(
        self,
        ids: Iterable[str] = (),
        include_disabled: bool = False,
        after: str | None = None,
        limit: int = 100,
        visibility: Visibility = EVERYTHING,
    ) -> tuple[list[Shown], str | None]:
        wanted = [check_id(id, None) for id in ids]

        def more(after: str | None, limit: int) -> list[tuple[str, Bundle]]:
            return [(one.id, one) for one in self.store.bundles(wanted, include_disabled, after, limit)]

        page, last = _page(more, visibility.bundle, after, limit)
        return [self._shown_bundle(one) for one in page], last

    # Tools

    def put_tool(self, bundle_id: str, slug: str, version: str, data: Any) -> tuple[Shown, ETag]:
        """What can't be called as the config is now is kept all the same, and `warnings` say so."""
        bundle_id = self._check_path(bundle_id, slug, version)
        content = read_tool(data, slug, version)
        self._factory.check(content)
        warnings = self._factory.warnings(content)
        tool = self.changed(self.store.put_tool(bundle_id, slug, version, content))
        return self._shown_tool(tool) | ({"warnings": warnings} if warnings else {}), self._tag(tool)

    def patch_tool(
        self, bundle_id: str, slug: str, version: str, data: Any, match: ETag | None = None
    ) -> tuple[Shown, ETag]:
        bundle_id = self._check_path(bundle_id, slug, version)
        is_enabled = self._switch(data, self.store.tool(bundle_id, slug, version))
        tool = self.changed(self.store.patch_tool(bundle_id, slug, version, is_enabled, _of_file(match)))
        return self._shown_tool(tool), self._tag(tool)

    def delete_tool(self, bundle_id: str, slug: str, version: str, match: ETag | None = None) -> None:
        bundle_id = self._check_path(bundle_id, slug, version)
        self.changed(self.store.delete_tool(bundle_id, slug, version, _of_file(match)))

    def check(self, tool: Tool) -> None:
        """Raises InvalidError for what could never run, as `put_tool` does: for callers that store a whole bundle."""
        self._factory.check(tool)

    def get_tool(
        self, bundle_id: str, slug: str, version: str, visibility: Visibility = EVERYTHING
    ) -> tuple[Shown, ETag]:
        tool = self._tool(bundle_id, slug, version, visibility)
        return self._with_usage([tool])[0], self._tag(tool)

    def tools(
        self,
        tags: Iterable[str] = (),
        bundle_ids: Iterable[str] = (),
        include_disabled: bool = False,
        after: str | None = None,
        limit: int = 100,
        visibility: Visibility = EVERYTHING,
    ) -> tuple[list[Shown], str | None]:
        tags, ids = list(tags), [check_id(id, None) for id in bundle_ids]

        def more(after: str | None, limit: int) -> list[tuple[str, Tool]]:
            return [(tool.id, tool) for tool in self.store.tools(tags, ids, include_disabled, after, limit)]

        page, last = _page(more, self._listed(include_disabled, visibility), after, limit)
        return self._with_usage(page), last

    def search(
        self,
        query: str,
        include_disabled: bool = False,
        after: Iterable[Any] | None = None,
        limit: int = 100,
        visibility: Visibility = EVERYTHING,
    ) -> tuple[list[Shown], list[Any] | None]:
        def more(after: Rank | None, limit: int) -> list[SearchHit]:
            return self.store.search(query, include_disabled, after, limit)

        rank = None if after is None else Rank(*after)
        page, last = _page(more, self._listed(include_disabled, visibility), rank, limit)
        return self._with_usage(page), None if last is None else list(last)

    def _listed(self, include_disabled: bool, visibility: Visibility) -> Callable[[Tool], bool]:
        """Tools whose function is gone count as disabled: only we know that."""
        return lambda tool: visibility.tool(tool) and (include_disabled or self._is_there(tool))

    async def visibility(self, allowed: Collection[str]) -> Visibility:
        """What is to be seen under this allow-list."""
        await self._refresh()  # what a tool is called depends on the others
        return AllowedOnly(self.store, self.loading.name_of, allowed)

    # Calls

    async def invoke(
        self,
        bundle_id: str,
        slug: str,
        version: str,
        args: Any,
        source: str = "rest",
        progress: Progress | None = None,
        allowed: Collection[str] | None = None,
    ) -> ToolResult:
        """Run exactly this tool. What is not there, switched off or over its limit is refused before anything runs."""
        ready = await self._prepared(bundle_id, slug, version)
        if not isinstance(args, Mapping):
            raise InvalidError("/args: expected an object", "/args")
        result = await self._execute(ToolCall(call_id(), ready.spec.name, args, source), ready.spec, allowed, progress)
        if result.error is not None and result.error.reason == LIMITED:
            raise RateLimitError(result.error.message, self._factory.wait(ready.tool))
        return result

    def record(self, event: CallEvent) -> None:
        """Count a finished call; calls of other tools are ignored."""
        error = event.error
        if event.spec is None or (error is not None and (error.code != "execution_error" or error.reason == LIMITED)):
            return
        id = event.spec.kept_as or self._built_in.get(event.spec.name)
        if id is not None:
            self.store.record_use(id)

    async def _prepared(self, bundle_id: str, slug: str, version: str) -> _Ready:
        """Made once, as long as nothing changes."""
        since, key = (self.store.state(), self.loading.count), (bundle_id, slug, version)  # switches count at once
        if since != self._ready_since or len(self._ready) > MOST_READY:
            await self._refresh()  # what a tool is called, and so whether it is allowed, depends on the others
            self._ready, self._ready_since = {}, (since[0], self.loading.count)
        found = self._ready.get(key)
        if found is None:
            found = self._ready[key] = self._prepare(bundle_id, slug, version)
        return found

    def _prepare(self, bundle_id: str, slug: str, version: str) -> _Ready:
        tool, bundle = self._tool(bundle_id, slug, version), self._bundle(bundle_id)
        if not bundle.is_enabled or bundle.soft_deleted_at is not None:
            raise ForbiddenError(f"the bundle {bundle.slug!r} is switched off: enable it first", "disabled")
        if not tool.is_enabled:
            raise ForbiddenError(
                f"{bundle.slug}/{slug} in version {version} is switched off: enable it first", "disabled"
            )
        if (why := self._why_disabled(tool)) is not None:
            raise ForbiddenError(f"{bundle.slug}/{slug} can't be called now: {why}", "disabled")
        name = self.loading.name_of(bundle, tool)
        if tool.is_built_in and (own := self._function(name)) is not None:
            return _Ready(tool, own)
        return _Ready(tool, self._factory.spec(tool, name, None))

    def switched_off(self) -> set[str]:
        """The built-in tools that must not be called, by their names."""
        packs = {name.partition(".")[0] for name in self._built_in}
        found: set[str] = set()
        for bundle in self.store.bundles([built_in_id(pack) for pack in packs], True, None, len(packs)):
            tools = self.store.tools((), [bundle.id], True, None, len(self._built_in))
            found |= {function_of(tool) for tool in tools if not (bundle.is_enabled and tool.is_enabled)}
        return found

    def changed(self, value: T) -> T:
        """Mark the store as changed, and return `value`."""
        self.loading.changed()
        return value

    def key(self) -> bytes:
        """What seals page tokens."""
        return self.store.key()

    def close(self) -> None:
        self.store.close()

    # What is behind it

    def _bundle(self, id: str, visibility: Visibility = EVERYTHING) -> Bundle:
        bundle = self.store.bundle(id)
        if bundle is None or not visibility.bundle(bundle):
            raise NotFoundError(f"there is no bundle {id}")
        return bundle

    def _tool(self, bundle_id: str, slug: str, version: str, visibility: Visibility = EVERYTHING) -> Tool:
        bundle_id = self._check_path(bundle_id, slug, version)
        tool = self.store.tool(bundle_id, slug, version)
        if tool is None or not visibility.tool(tool):
            self._bundle(bundle_id, visibility)  # which is the better thing to say, if it is not there
            raise NotFoundError(f"there is no tool {slug!r} in version {version!r} in the bundle {bundle_id}")
        return tool

    def _check_path(self, bundle_id: str, slug: str, version: str) -> str:
        """The bundle's id, as it is kept."""
        check_slug(slug, None)
        check_version(version, None)
        return check_id(bundle_id, None)

    def _switch(self, data: Any, thing: Bundle | Tool | None) -> bool:
        """What a PATCH says. It is about one thing alone."""
        if not isinstance(data, Mapping):
            raise InvalidError("the body: expected a JSON object with isEnabled", "")
        for key in data:
            if key != "isEnabled":
                if thing is not None and thing.is_built_in:
                    raise ForbiddenError(f"{key} can't be changed: it is built in, and only isEnabled can", "built_in")
                raise InvalidError(f"{key}: only isEnabled can be changed in this way", below("", key))
        value = data.get("isEnabled")
        if not isinstance(value, bool):
            raise InvalidError("/isEnabled: expected true or false", "/isEnabled")
        return value

    def _why_disabled(self, tool: Tool) -> str | None:
        return None if tool.is_built_in else self._factory.why_disabled(tool)

    def _is_there(self, tool: Tool) -> bool:
        return self._why_disabled(tool) is None

    # What is shown

    def _shown_bundle(self, bundle: Bundle) -> Shown:
        found = shown(bundle)
        del found["schemaVersion"]
        return found

    def _tag(self, tool: Tool) -> ETag:
        """The ETag of a tool as it is shown: it differs if its function is missing, though its file is the same."""
        return tag_of(tool) + ("" if self._is_there(tool) else OFF)

    def _shown_tool(self, tool: Tool) -> Shown:
        found = shown(tool)
        if (why := self._why_disabled(tool)) is not None:
            found |= {"isEnabled": False, "disabledReason": why}
        return found

    def _with_usage(self, tools: list[Tool]) -> list[Shown]:
        usage = self.store.usage([tool.id for tool in tools]) if tools else {}
        never = (0, None)
        return [
            {**self._shown_tool(tool), "callCount": count, "lastCalledAt": last}
            for tool in tools
            for count, last in [usage.get(tool.id, never)]
        ]


def _page(
    more: Callable[[Any, int], Iterable[tuple[Any, T]]], is_listed: Callable[[T], bool], after: Any, limit: int
) -> tuple[list[T], Any]:
    """So many of those that are listed, and where the next ones begin."""
    page: list[T] = []
    last = None
    while True:
        wanted = limit + 1 - len(page)
        found = list(more(after, wanted))
        for place, thing in found:
            if is_listed(thing):
                if len(page) == limit:
                    return page, last
                page.append(thing)
                last = place
        if len(found) < wanted:
            return page, None
        after = found[-1][0]


def _of_file(match: ETag | None) -> ETag | None:
    """What the store knows a tool by."""
    return None if match is None else match.removesuffix(OFF)


# Polling the folder


log = logging.getLogger("onetool.bundles")

EVERY = 1.0  # seconds
SHARE = 20  # a look that takes long is made less often: it may cost one part in so many
LAST_WAIT = 2.0


class StorePoller:
    """Calls `poll` regularly until it is closed. An error is logged once."""

    def __init__(self, poll: Callable[[], None], every: float = EVERY) -> None:
        self._poll = poll
        self._every = every
        self._closed = Event()
        self._problem = ""
        self._thread = Thread(target=self._run, name="onetool-bundles", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._closed.set()
        self._thread.join(LAST_WAIT)

    def _run(self) -> None:
        pause = self._every
        while not self._closed.wait(pause):
            began = perf_counter()
            problem = ""
            try:
                self._poll()
            except Exception as error:  # noqa: BLE001 - whatever it is, the next look may succeed
                problem = f"{type(error).__name__}: {error}"
            if problem and problem != self._problem:
                log.error("changes of bundles are not noticed for now: %s", problem)
            self._problem = problem
            pause = max(self._every, (perf_counter() - began) * SHARE)
