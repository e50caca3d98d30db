"""A store in memory, with faults on demand, to test the REST API without bundles on disk."""

import asyncio
import threading
import time

import msgspec

from onetool import Executor, Registry, ToolCall, ToolSpec
from onetool.core.context import current_call
from onetool.sources.bundles import model
from onetool.sources.bundles.errors import (
    ConflictError,
    ForbiddenError,
    InvalidError,
    NotFoundError,
    OutdatedError,
    RateLimitError,
    UnavailableError,
)
from onetool.sources.bundles.model import Bundle, Tool, function_of
from onetool.sources.bundles.names import check_slug, new_id
from onetool.sources.bundles.queries import FIRST_PAGE, tag_of
from onetool.sources.bundles.validation import read_bundle, read_tool

BUILT_IN = "01890a5d-0000-7000-8000-000000000001"
NOW = "2026-11-15T16:00:00.000Z"


class Functions:
    """What the tools of the tests do. `events` is what happened, for who asks."""

    def __init__(self):
        self.events = []

    def echo(self, **args):
        return args

    def odd(self):
        return {"big": 10**30, "bytes": b"x", "set": {1}, "half": "\ud800"}

    def large(self, size):
        return "x" * size

    def broken(self):
        raise ValueError("it broke, hush-hush")

    async def slow(self, name="slow", seconds=20):
        self.events.append(f"{name} began")
        try:
            await asyncio.sleep(seconds)
        except asyncio.CancelledError:
            self.events.append(f"{name} cancelled")
            raise
        self.events.append(f"{name} ended")
        return name

    async def steps(self, count=3, pause=0.0):
        from onetool.http.body import StreamedText

        tell = current_call.get().progress or (lambda *_: None)
        for number in range(count):
            tell(number, count, f"step {number}")
            tell(number, None, StreamedText(f"piece\n{number}"))
            await asyncio.sleep(pause)
        return count

    def in_thread(self, count=3):
        tell = current_call.get().progress or (lambda *_: None)
        for number in range(count):
            tell(number, None, None)
        return threading.current_thread() is not threading.main_thread()

    def what_happened(self):
        return list(self.events)


class MemoryStore:
    def __init__(self):
        self._lock = threading.RLock()
        self._bundles, self._tools = {}, {}
        self._functions = Functions()
        self._bundles[BUILT_IN] = Bundle(
            id=BUILT_IN, slug="tests", is_built_in=True, created_at=NOW, modified_at=NOW, description="Built in."
        )
        for name in [name for name in vars(Functions) if not name.startswith("_")]:
            self._add_built_in(name)

    def _add_built_in(self, name):
        slug = name.replace("_", "-")
        schemas = {"large": {"size": {"type": "integer"}}}
        schema = {"type": "object", "properties": schemas.get(name, {}), "required": list(schemas.get(name, {}))}
        if name in ("echo", "slow", "steps", "in_thread"):
            schema["additionalProperties"] = True
        self._tools[BUILT_IN, slug, "1"] = Tool(
            id=new_id(time.time()), bundle_id=BUILT_IN, slug=slug, version="1", type="python", is_built_in=True,
            arg_schema=schema, python_impl={"func": name}, tags=("test",), created_at=NOW, modified_at=NOW,
        )  # fmt: skip

    # Bundles

    async def keep_in_step(self):
        """It has no functions that could be switched."""

    async def why_unnamed(self, id):
        """Its tools have no names in code."""

    def put_bundle(self, id, data, match=None, create_only=False):
        content = read_bundle(data)
        check_slug(content.slug)
        with self._lock:
            self._fault(content.description)
            found = self._bundles.get(id)
            if found and create_only:
                raise ConflictError(f"the bundle {id} is there already")
            self._check(found, match)
            if found and found.is_built_in:
                raise ForbiddenError("it is built in", "built_in")
            fields = {name: getattr(content, name) for name in content.__struct_fields__}
            bundle = Bundle(id=id, created_at=found.created_at if found else NOW, modified_at=NOW, **fields)
            self._bundles[id] = bundle
            return shown(bundle), tag_of(bundle), found is None or found.soft_deleted_at is not None

    def patch_bundle(self, id, data, match=None):
        with self._lock:
            found = self._bundle(id)
            self._check(found, match)
            bundle = self._bundles[id] = msgspec.structs.replace(found, is_enabled=self._switch(data, found))
            return shown(bundle), tag_of(bundle)

    def delete_bundle(self, id, match=None):
        with self._lock:
            found = self._bundle(id)
            self._check(found, match)
            if found.is_built_in:
                raise ForbiddenError("it is built in", "built_in")
            if any(key[0] == id for key in self._tools):
                raise ConflictError("it has tools: delete them first", "not_empty")
            del self._bundles[id]

    def get_bundle(self, id, visibility=None):
        found = self._bundle(id)
        return shown(found), tag_of(found)

    def bundles(self, query=FIRST_PAGE, visibility=None):
        found = query.bundles(sorted(self._bundles.values(), key=lambda one: one.id))
        return self._page([*found], query.limit)

    # Tools

    def put_tool(self, bundle_id, slug, version, data):
        content = read_tool(data, slug, version)
        with self._lock:
            bundle = self._bundle(bundle_id)
            if bundle.is_built_in or not bundle.is_enabled:
                raise ForbiddenError("the bundle takes no changes", "disabled")
            if (bundle_id, slug, version) in self._tools:
                raise ConflictError("it is there already")
            fields = {name: getattr(content, name) for name in content.__struct_fields__}
            id = new_id(time.time())
            places = {"bundle_id": bundle_id, "slug": slug, "version": version}
            tool = Tool(id=id, created_at=NOW, modified_at=NOW, **places, **fields)
            self._tools[bundle_id, slug, version] = tool
            return shown(tool), tag_of(tool)

    def patch_tool(self, bundle_id, slug, version, data, match=None):
        with self._lock:
            found = self._tool(bundle_id, slug, version)
            self._check(found, match)
            if not self._bundle(bundle_id).is_enabled:
                raise ForbiddenError("the bundle takes no changes", "disabled")
            tool = msgspec.structs.replace(found, is_enabled=self._switch(data, found))
            self._tools[bundle_id, slug, version] = tool
            return shown(tool), tag_of(tool)

    def delete_tool(self, bundle_id, slug, version, match=None):
        with self._lock:
            found = self._tool(bundle_id, slug, version)
            self._check(found, match)
            if found.is_built_in:
                raise ForbiddenError("it is built in", "built_in")
            del self._tools[bundle_id, slug, version]

    def get_tool(self, bundle_id, slug, version, visibility=None):
        found = self._tool(bundle_id, slug, version)
        return {**shown(found), "callCount": 0, "lastCalledAt": None}, tag_of(found)

    def tools(self, query=FIRST_PAGE, visibility=None):
        of = query.bundle_ids
        found = [one for one in self._tools.values() if not of or one.bundle_id in of]
        live = {id for id, one in self._bundles.items() if one.is_enabled}
        return self._page([*query.tools(sorted(found, key=lambda one: one.id), live)], query.limit)

    def search(self, query, include_disabled=False, after=None, limit=100, visibility=None):
        found = [one for one in sorted(self._tools.values(), key=lambda one: one.id) if one.slug.startswith(query)]
        page, last = self._page([one for one in found if not after or one.id > after[4]], limit)
        return page, None if last is None else [0, 0.1 + 0.2, "", -1, last]

    def key(self):
        return b"k" * 32

    # Calls

    async def call(self, call, allowed=None, progress=None):
        bundle_id, slug, version = call.version
        tool = self._tool(bundle_id, slug, version)
        if not (tool.is_enabled and self._bundle(bundle_id).is_enabled):
            raise ForbiddenError("it is switched off", "disabled")
        if tool.limits:
            raise RateLimitError("too often", {"limit": 1, "remaining": 0, "reset_s": 3})
        name = f"tests.{slug}"
        handler = getattr(self._functions, function_of(tool), None) if tool.type == "python" else (lambda **_: None)
        registry = Registry()
        registry.register(ToolSpec(name=name, description="d", input_schema=tool.arg_schema, handler=handler))
        executor = Executor(registry, redact=hush, timeout=30)
        return await executor.execute(ToolCall("1", name, call.args, call.source), allowed, progress)

    # Small things

    def _bundle(self, id):
        if id not in self._bundles:
            raise NotFoundError(f"there is no bundle {id}")
        return self._bundles[id]

    def _tool(self, *key):
        self._bundle(key[0])
        if key not in self._tools:
            raise NotFoundError("there is no such tool")
        return self._tools[key]

    def _check(self, found, match):
        if match is not None and (found is None or match not in ("*", tag_of(found))):
            raise OutdatedError("somebody else has changed it")

    def _switch(self, data, found):
        if not isinstance(data, dict) or set(data) != {"isEnabled"} or not isinstance(data["isEnabled"], bool):
            if found.is_built_in:
                raise ForbiddenError("it is built in", "built_in")
            raise InvalidError('expected {"isEnabled": true} or false', "")
        return data["isEnabled"]

    def _page(self, found, limit):
        page = found[:limit]
        return [shown(one) for one in page], page[-1].id if len(found) > limit else None

    def _fault(self, word):
        if word == "unavailable":
            raise UnavailableError("the disk is full: hush-hush")
        if word == "bug":
            raise RuntimeError("a bug")


def shown(thing):
    found = model.shown(thing)
    if isinstance(thing, Bundle):
        del found["schemaVersion"]
    return found


def hush(value, sent=None):
    if isinstance(value, str):
        return value.replace("hush-hush", "***")
    if isinstance(value, dict):
        return {key: hush(one) for key, one in value.items()}
    return [hush(one) for one in value] if isinstance(value, list) else value
