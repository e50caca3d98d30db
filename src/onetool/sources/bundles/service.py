"""`BundleService`, the operations of REST and the command line on stored and built-in bundles.

Methods take unvalidated data and return data to show; they raise a BundleError for refused requests. All methods block,
except coroutines and `ready`, which are for event loops.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar
from zlib import crc32

import msgspec
from msgspec.structs import replace

from onetool.core.call import DRAFT, ToolCall, ToolResult, ToolVersion, new_id
from onetool.core.context import CallEvent, CallTool, Progress
from onetool.core.mismatch import described
from onetool.core.registry import SingleTool
from onetool.core.spec import ToolSpec
from onetool.core.work import check_wanted
from onetool.http.definition import below
from onetool.sources.bundles.derived import DerivedBundles
from onetool.sources.bundles.errors import ForbiddenError, InvalidError, NotFoundError, invalid_at
from onetool.sources.bundles.model import Bundle, BundleContent, Tool, ToolContent, built_in_id, built_in_place, shown
from onetool.sources.bundles.named import VERSION_SIGN, BundleTools
from onetool.sources.bundles.names import check_id, check_slug, check_version
from onetool.sources.bundles.queries import (
    EVERYTHING,
    FIRST_PAGE,
    ETag,
    ListQuery,
    Rank,
    SearchHit,
    Visibility,
    tag_of,
)
from onetool.sources.bundles.rate_limits import LIMITED, refuse_limited
from onetool.sources.bundles.row_facts import AllowedOnly, RowFacts, age_of, page_of, takeover
from onetool.sources.bundles.store.store import BundleStore
from onetool.sources.bundles.tool_factory import NO_SECRETS, BundleRuntime, SecretHosts, ToolFactory
from onetool.sources.bundles.validation import read_bundle, read_examples, refuse_secrets

if TYPE_CHECKING:
    from onetool.http.upstream import OnResponse
    from onetool.sources.bundles.archive import ImportPlan

Content = TypeVar("Content", BundleContent, ToolContent)
Shown = dict[str, Any]
MAX_READY = 10_000  # tools that are kept ready for calls by id
OFF, SHOWN = "-off", "-shown-"  # of ETags


class BundleService:
    """The operations on bundles. `built_in` are built-in tools, `derived` the other tools outside the store."""

    def __init__(
        self,
        store: BundleStore,
        factory: ToolFactory,
        call: CallTool,
        built_in: Iterable[str],
        derived: DerivedBundles,
        runtime: BundleRuntime,
    ) -> None:
        self.store = store
        store.function = runtime.function
        self._factory = factory
        self.check, self.check_tool, self.warnings = factory.check, factory.check_tool, factory.warnings
        self.preview, self.require_bound = factory.preview, factory.require_bound
        self._call = call
        self._runtime = runtime
        self._derived = derived
        self._built_in = {name: built_in_id(name) for name in built_in}
        self.loading = BundleTools(store, factory)
        self._facts = RowFacts(store, self.loading, runtime)
        self._ready: tuple[int, dict[ToolVersion, SingleTool]] = (0, {})  # with the number of the load

    @property
    def fresh(self) -> BundleStore:
        """The store, including all changes by other replicas until now."""
        self.store.catch_up()
        return self.store

    # Bundles

    def put_bundle(
        self, id: str, data: Any, match: ETag | None = None, create_only: bool = False
    ) -> tuple[Shown, ETag, bool]:
        """Create or replace a bundle. A deleted bundle is restored."""
        content = read_bundle(data)
        bundle, is_new = self.store.put_bundle(check_id(id, None), content, match, create_only)
        return self._shown_bundle(bundle), tag_of(bundle), is_new

    def patch_bundle(self, id: str, data: Any, match: ETag | None = None) -> tuple[Shown, ETag]:
        id = check_id(id, None)
        is_enabled = self._switch(data, self.store.bundle(id))
        bundle = self.store.patch_bundle(id, is_enabled, match)
        return self._shown_bundle(bundle), tag_of(bundle)

    def delete_bundle(self, id: str, match: ETag | None = None) -> None:
        self.store.delete_bundle(check_id(id, None), match)

    def get_bundle(self, id: str, visibility: Visibility = EVERYTHING) -> tuple[Shown, ETag]:
        bundle = self._bundle(check_id(id, None), visibility)
        return self._shown_bundle(bundle), tag_of(bundle)

    def bundles(
        self, query: ListQuery = FIRST_PAGE, visibility: Visibility = EVERYTHING
    ) -> tuple[list[Shown], str | None]:
        query = _with_checked_ids(query)

        def more(after: str | None, limit: int) -> list[tuple[str, Bundle]]:
            return [(bundle.id, bundle) for bundle in self.fresh.bundles(replace(query, after=after, limit=limit))]

        page, last = page_of(more, visibility.bundle, query.after, query.limit)
        if not page:
            self.store.require_current()
        return [self._shown_bundle(bundle) for bundle in page], last

    # Tools

    def put_tool(
        self, bundle_id: str, slug: str, version: str, data: Any, secrets: SecretHosts = NO_SECRETS
    ) -> tuple[Shown, ETag]:
        """Store a tool. `warnings` tell why it can't be called for now, or has no name in code."""
        bundle_id = self._check_path(bundle_id, slug, version)
        content, made, faults = self.check_tool(data, slug, version)
        faults.raise_first()
        assert content is not None  # noqa: S101 - for the type checker: only a tool with mistakes is None
        self.require_bound(content, secrets, made)
        unnamed = self.loading.why_unnamed(bundle_id)
        warnings = [*self.warnings(made), *([] if unnamed is None else [unnamed])]
        tool = self.store.put_tool(bundle_id, slug, version, content)
        return self._shown_tool(tool) | ({"warnings": warnings} if warnings else {}), self._tag(tool)

    def patch_tool(
        self, bundle_id: str, slug: str, version: str, data: Any, match: ETag | None = None
    ) -> tuple[Shown, ETag]:
        """Enable or disable a version. `takesOver` is the version that the name stands for instead, if any."""
        bundle_id = self._check_path(bundle_id, slug, version)
        before = self.store.tool(bundle_id, slug, version)
        is_enabled = self._switch(data, before)
        tool = self.store.patch_tool(bundle_id, slug, version, is_enabled, _stored_tag(match))
        shown = self._shown_tool(tool)
        if before is not None and not is_enabled and self._is_callable(before):
            shown |= takeover(before, filter(self._is_callable, self.store.versions(bundle_id, slug)))
        return shown, self._tag(tool)

    def get_examples(
        self, bundle_id: str, slug: str, version: str, visibility: Visibility = EVERYTHING
    ) -> tuple[list[Shown], ETag]:
        tool = self._tool(bundle_id, slug, version, visibility)
        return msgspec.to_builtins(tool.examples), self._tag(tool)

    def put_examples(
        self, bundle_id: str, slug: str, version: str, data: Any, match: ETag | None = None
    ) -> tuple[list[Shown], ETag]:
        """Replace the examples of a tool, which may be built-in or derived."""
        bundle_id = self._check_path(bundle_id, slug, version)
        examples = read_examples(data)
        refuse_secrets(examples, self.tool_and_spec(bundle_id, slug, version)[1].input_schema)
        tool = self.store.put_examples(bundle_id, slug, version, examples, _stored_tag(match))
        return msgspec.to_builtins(tool.examples), self._tag(tool)

    def delete_tool(self, bundle_id: str, slug: str, version: str, match: ETag | None = None) -> None:
        bundle_id = self._check_path(bundle_id, slug, version)
        self.store.delete_tool(bundle_id, slug, version, _stored_tag(match))

    def rename_tool(
        self, bundle_id: str, slug: str, version: str, new: tuple[str, str], match: ETag | None = None
    ) -> None:
        """Rename a tool. `new` is its new slug and version."""
        bundle_id = self._check_path(bundle_id, slug, version)
        self.store.rename_tool(bundle_id, slug, version, *new, _stored_tag(match))

    def check_new(self, tool: ToolContent, secrets: SecretHosts = NO_SECRETS) -> None:
        """Raise the errors of `put_tool`: InvalidError or ForbiddenError. `secrets` are stored with the tool."""
        self.require_bound(tool, secrets, self.check(tool))

    async def why_unnamed(self, bundle_id: str) -> str | None:
        """Return why the tools of a bundle have no name in code, or None."""
        await self._runtime.refresh()  # the name of a bundle depends on other tools
        return self.loading.why_unnamed(check_id(bundle_id, None))

    # Whole bundles

    def put_all(self, bundle: Bundle, tools: Sequence[Tool], secrets: SecretHosts = NO_SECRETS) -> None:
        """Create a bundle with its tools, each checked as in `put_tool`; all or nothing."""
        for tool in tools:
            self.check_new(tool, secrets)
        self.store.put_all(bundle, tools)

    def put_import(self, plan: "ImportPlan") -> None:
        """Apply the plan of an import, all or nothing."""
        invalid = [f"{tool.slug}@{tool.version}: {why}" for tool, why in self.invalid(plan.new_tools)]
        if plan.refused or invalid:
            raise InvalidError("; ".join([*plan.refused, *invalid]))
        for tool in plan.new_tools:
            self.require_bound(tool)
        if plan.is_new:
            self.store.put_all(plan.bundle, plan.new_tools)
            return
        content = _content(plan.bundle, BundleContent) if plan.rows[0].what == "changed" else None
        tools = [(tool.slug, tool.version, _content(tool, ToolContent)) for tool in plan.new_tools]
        self.store.put_tools(plan.bundle.id, tools, content)

    def invalid(self, tools: Iterable[Tool]) -> list[tuple[Tool, InvalidError]]:
        """Return the tools of an import that could never run, with the reasons.

        Only HTTP tools are checked: other tools may need a function or a tool that is added later.
        """
        invalid: list[tuple[Tool, InvalidError]] = []
        for tool in tools:
            check_wanted()
            try:
                if tool.type == "http":
                    self.check(tool)
            except InvalidError as error:
                invalid.append((tool, error))
        return invalid

    def get_tool(
        self, bundle_id: str, slug: str, version: str, visibility: Visibility = EVERYTHING
    ) -> tuple[Shown, ETag]:
        tool = self._tool(bundle_id, slug, version, visibility)
        shown = self.shown_tools([tool])[0]
        return shown | self._facts.signature(shown["name"]), self._tag(tool)

    def tools(
        self, query: ListQuery = FIRST_PAGE, visibility: Visibility = EVERYTHING
    ) -> tuple[list[Shown], str | None]:
        query = _with_checked_ids(query)

        def more(after: str | None, limit: int) -> list[tuple[str, Tool]]:
            return [(tool.id, tool) for tool in self.fresh.tools(replace(query, after=after, limit=limit))]

        page, last = page_of(more, self._listed(query.include_disabled, visibility), query.after, query.limit)
        if not page:
            self.store.require_current()
        return self.shown_tools(page), last

    def search(
        self,
        query: str,
        include_disabled: bool = False,
        after: Rank | None = None,
        limit: int = 100,
        visibility: Visibility = EVERYTHING,
    ) -> tuple[list[Shown], Rank | None]:
        def more(after: Rank | None, limit: int) -> list[SearchHit]:
            return self.fresh.search(query, include_disabled, after, limit)

        page, last = page_of(more, self._listed(include_disabled, visibility), after, limit)
        if not page:
            self.store.require_current()
        return self.shown_tools(page), last

    def _listed(self, include_disabled: bool, visibility: Visibility) -> Callable[[Tool], bool]:
        """Return a filter for lists.

        Tools whose function is missing count as disabled, which the store doesn't know.
        """
        return lambda tool: visibility.tool(tool) and (include_disabled or self._why_disabled(tool) is None)

    def versions(self, bundle_id: str, slug: str, visibility: Visibility = EVERYTHING) -> list[Shown]:
        """Return all versions of a tool, newest first.

        `isDefault` is true for the version that the name in code stands for.
        """
        bundle_id, slug = check_id(bundle_id, None), check_slug(slug, None)
        tools = [tool for tool in self.fresh.versions(bundle_id, slug) if visibility.tool(tool)]
        if not tools:
            self._bundle(bundle_id, visibility)
            self.store.require_current()
            raise NotFoundError(f"there is no tool {slug!r} in the bundle {bundle_id}")
        tools.sort(key=age_of, reverse=True)
        bundle = self._bundle(bundle_id)
        return [
            row | {"isDefault": self.loading.named.is_default(bundle, tool)}
            for tool, row in zip(tools, self.shown_tools(tools), strict=True)
        ]

    async def keep_in_step(self) -> None:
        """Apply recently changed switches before the next write."""
        await self._runtime.refresh()

    async def visibility(self, allowed: Collection[str]) -> Visibility:
        """Return the visibility rule for this allow-list."""
        await self._runtime.refresh()  # the name of a tool depends on other tools
        return AllowedOnly(self.store, self.loading.named.name_of, allowed)

    # Calls

    async def invoke(
        self,
        bundle_id: str,
        slug: str,
        version: str,
        args: Mapping[str, Any],
        source: str = "rest",
        progress: Progress | None = None,
        allowed: Collection[str] | None = None,
    ) -> ToolResult:
        """Run a version of a tool, even a version without a name in code.

        Raises a BundleError if the version doesn't exist, is disabled or has reached its limit.
        """
        if not isinstance(args, Mapping):
            raise invalid_at("/args", f"expected an object, got {described(args)}")
        call = ToolCall(new_id(), "", args, source, version=(bundle_id, slug, version))
        result = await self._call(call, allowed, progress)
        if result.error is not None:
            refuse_limited(result)
        return result

    def ready(self, version: ToolVersion) -> SingleTool | None:
        """Return the result of `make_ready` if the tools were not reloaded since. Never blocks."""
        load, found = self._ready
        return found.get(version) if load == self.loading.count else None

    def make_ready(self, version: ToolVersion) -> SingleTool:
        """Return a version for calls. Raises NotFoundError, or ForbiddenError if the version is disabled."""
        load = self.loading.count  # read first, so that a concurrent load is noticed
        tool, bundle = self._tool(*version), self._bundle(version[0])
        name = f"{bundle.slug}/{tool.slug}"
        if not bundle.is_enabled or bundle.soft_deleted_at is not None:
            raise ForbiddenError(f"the bundle {bundle.slug!r} is disabled: enable it first", "disabled")
        if not tool.is_enabled:
            raise ForbiddenError(f"{name} in version {tool.version} is disabled: enable it first", "disabled")
        if (why := self._why_disabled(tool)) is not None:
            raise ForbiddenError(f"{name} can't be called now: {why}", "disabled")
        spec = self._spec(bundle, tool)
        spec.compile()  # in this thread, because a large schema takes a second
        tool_ready = SingleTool(spec)
        known = self._ready
        if known[0] != load or len(known[1]) >= MAX_READY:
            known = self._ready = (load, {})
        known[1][version] = tool_ready
        return tool_ready

    def tool_and_spec(
        self, bundle_id: str, slug: str, version: str, visibility: Visibility = EVERYTHING
    ) -> tuple[Tool, ToolSpec]:
        """Return a version, even a disabled one, with its spec for reading."""
        tool = self._tool(bundle_id, slug, version, visibility)
        return tool, self._spec(self._bundle(tool.bundle_id), tool)

    def spec_of_draft(self, tool: Tool, on_response: "OnResponse | None" = None) -> ToolSpec:
        """Return the spec of a draft, under a name that no stored tool has."""
        bundle = self.store.bundle(tool.bundle_id)
        name = f"{DRAFT}/{tool.slug}{VERSION_SIGN}{tool.version}"
        return self._factory.spec(
            tool, name if bundle is None else self.loading.named.name_of(bundle, tool), on_response=on_response
        )

    def counted_names(
        self, bundle_id: str, slug: str, version: str, visibility: Visibility = EVERYTHING
    ) -> tuple[str, ...]:
        """Return the names under which calls of a version are counted. The default version has two."""
        tool = self._tool(bundle_id, slug, version, visibility)
        name = self.loading.named.name_of(self._bundle(tool.bundle_id), tool)
        return (name,) if tool.is_built_in or VERSION_SIGN in name else (name, f"{name}{VERSION_SIGN}{version}")

    def place_of(self, spec: ToolSpec) -> tuple[str, str, str] | None:
        """Return the bundle id, slug and version of a listed tool. This may be slow."""
        if spec.kept_as is not None:
            return self.loading.named.place_of(spec)
        if spec.name in self._built_in:
            return built_in_place(spec)
        tool = self._derived.tool(spec.name)
        return None if tool is None else (tool.bundle_id, tool.slug, tool.version)

    def _spec(self, bundle: Bundle, tool: Tool) -> ToolSpec:
        named = self.loading.named
        name = named.name_of(bundle, tool)
        spec = named.spec_of(name, tool)
        if tool.source is not None:
            spec = self._derived.spec(name)
            if spec is None:  # removed concurrently
                raise NotFoundError(f"the tool {name} no longer exists")
        elif tool.is_built_in:
            spec = self._runtime.function(name)
        return spec or self._factory.spec(tool, name, None)

    def record(self, event: CallEvent) -> None:
        """Count a finished call of a bundle's tool."""
        error = event.error
        if event.spec is None or (error is not None and (error.code != "execution_error" or error.reason == LIMITED)):
            return
        id = event.spec.kept_as or self._built_in.get(event.spec.name) or self._derived.id_of(event.spec)
        if id is not None:
            self.store.counter.record(id)

    def key(self) -> bytes:
        """Return the key for page tokens."""
        return self.store.key()

    def close(self) -> None:
        self.store.close()

    # Helpers

    def _bundle(self, id: str, visibility: Visibility = EVERYTHING) -> Bundle:
        bundle = self.fresh.bundle(id)
        if bundle is None:
            self.store.require_current()
        if bundle is None or not visibility.bundle(bundle):
            raise NotFoundError(f"there is no bundle {id}")
        return bundle

    def _tool(self, bundle_id: str, slug: str, version: str, visibility: Visibility = EVERYTHING) -> Tool:
        bundle_id = self._check_path(bundle_id, slug, version)
        tool = self.fresh.tool(bundle_id, slug, version)
        if tool is None or not visibility.tool(tool):
            self._bundle(bundle_id, visibility)  # a missing bundle is the better error
            self.store.require_current()
            raise NotFoundError(f"there is no tool {slug!r} in version {version!r} in the bundle {bundle_id}")
        return tool

    def _check_path(self, bundle_id: str, slug: str, version: str) -> str:
        """Check the place of a tool, and return the bundle id in its stored form."""
        check_slug(slug, None)
        check_version(version, None)
        return check_id(bundle_id, None)

    def _switch(self, data: Any, item: Bundle | Tool | None) -> bool:
        """Return the `isEnabled` of a PATCH. Raises an error for any other key."""
        if not isinstance(data, Mapping):
            raise InvalidError("expected a JSON object with isEnabled", "")
        for key in data:
            if key != "isEnabled":
                if item is not None and item.is_built_in:
                    raise ForbiddenError(f"{key} can't be changed: it is built in, and only isEnabled can", "built_in")
                raise invalid_at(below("", key), "only isEnabled can be changed this way; PUT changes the rest")
        value = data.get("isEnabled")
        if not isinstance(value, bool):
            raise invalid_at("/isEnabled", "expected true or false")
        return value

    def _why_disabled(self, tool: Tool) -> str | None:
        return None if tool.is_built_in else self._factory.why_disabled(tool)

    def _is_callable(self, tool: Tool) -> bool:
        return tool.is_enabled and self._why_disabled(tool) is None

    # Output

    def _shown_bundle(self, bundle: Bundle) -> Shown:
        data = shown(bundle)
        del data["schemaVersion"]
        return data

    def _tag(self, tool: Tool) -> ETag:
        """Return the ETag of a tool as shown, which also changes with the state of its function."""
        inherited = self._factory.inherited(tool)
        shown = f"{SHOWN}{crc32(msgspec.json.encode(inherited)):x}" if inherited else ""
        return tag_of(tool) + (OFF if self._why_disabled(tool) else "") + shown

    def _shown_tool(self, tool: Tool) -> Shown:
        return self._shown(tool, self._why_disabled(tool))

    def shown_tools(self, tools: list[Tool]) -> list[Shown]:
        """Return the tools as shown in lists: with their usage and the fields of `row_facts`."""
        usage = self.store.counter.of([tool.id for tool in tools]) if tools else {}
        never = (0, None)
        reasons = [self._why_disabled(tool) for tool in tools]
        facts_of_all = self._facts.of([(tool, why is None) for tool, why in zip(tools, reasons, strict=True)])
        rows: list[Shown] = []
        for tool, why, facts in zip(tools, reasons, facts_of_all, strict=True):
            count, last = usage.get(tool.id, never)
            effect = self._factory.effect(tool)
            row = {**self._shown(tool, why), "callCount": count, "lastCalledAt": last, **facts}
            rows.append({**row, "effect": effect} if effect else row)
        return rows

    def _shown(self, tool: Tool, why_disabled: str | None) -> Shown:
        data = shown(tool)
        if inherited := self._factory.inherited(tool):
            names = {field.name: field.encode_name for field in msgspec.structs.fields(ToolContent)}
            data["inherited"] = {names[key]: value for key, value in inherited.items()}
        return data if why_disabled is None else data | {"isEnabled": False, "disabledReason": why_disabled}


def _with_checked_ids(query: ListQuery) -> ListQuery:
    return replace(query, bundle_ids=[check_id(id, None) for id in query.bundle_ids])


def _content(item: Bundle | Tool, shape: type[Content]) -> Content:
    """Return the fields that users set."""
    return shape(**{name: getattr(item, name) for name in shape.__struct_fields__})


def _stored_tag(match: ETag | None) -> ETag | None:
    """Return the store's ETag for the ETag of a tool as shown."""
    return None if match is None else match.partition(SHOWN)[0].removesuffix(OFF)
