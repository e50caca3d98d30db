"""What is stored of a server between two starts: its tools, which definitions were approved, which transport worked.

So tools can be listed before their server is up, and a definition that has changed since it was approved is noticed. A
server is identified by its command or its url: with another one everything is forgotten. One document per server.

The folder that a command runs in counts, too. On one machine it is the folder itself. In a database that machines share
it is what the config says: one that says nothing may lie in another folder on each of them. If configs say different
things under one name, each has a document of its own.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from typing import Any
from urllib.parse import quote

import msgspec
from msgspec.structs import replace

from onetool.database import DatabaseError
from onetool.database.documents import Documents, Version
from onetool.sources.mcp_servers.settings import ServerSettings

Definition = Mapping[str, Any]
"""A tool as its server lists it."""

PARTS = {  # what is pinned of a definition, and what it is called when it changes
    "description": ("title", "description"),
    "parameters": ("inputSchema",),
    "output": ("outputSchema",),
    "behaviour": ("annotations",),
    "metadata": ("icons", "_meta"),
}
PASSED = ("title", "annotations", "icons", "_meta")  # what our clients read of it as it is
# What, once it has this value, lets a tool run unasked or a second time, here or in a client that asks people.
LOOSENING = {"readOnlyHint": True, "idempotentHint": True, "destructiveHint": False, "openWorldHint": False}
MAX_NAME = 100


class Offers(msgspec.Struct, frozen=True, kw_only=True):
    """What it has beside tools, as it lists that."""

    prompts: tuple[Definition, ...] = ()
    resources: tuple[Definition, ...] = ()
    templates: tuple[Definition, ...] = ()


class ServerListing(msgspec.Struct, frozen=True):
    """What a server said of itself when it was connected."""

    tools: Sequence[Definition]
    offers: Offers
    version: str | None
    way: str


class CachedServer(msgspec.Struct, frozen=True, kw_only=True):
    """The content of the document."""

    server: str = ""  # a digest of what it is
    way: str | None = None  # how it was reached last: the client's mode, or "sse"
    version: str | None = None  # what it calls itself
    tools: tuple[Definition, ...] | None = None  # None: it has never told
    unusable: dict[str, str] = {}  # tools that can't be ours, and why
    approved: dict[str, dict[str, str]] | None = None  # for each tool the digests of its parts
    failed: float = 0.0  # when it could not be connected, and had never told its tools
    former: dict[str, Definition] = {}  # tools that have changed, as they were before
    offers: Offers = Offers()


class ServerCache:
    """What is stored of one server. What is wrong with it counts as empty, and what can't be written is forgotten."""

    def __init__(self, documents: Documents, name: str, settings: ServerSettings) -> None:
        self._documents = documents
        here = _digest([settings.target, str(settings.cwd)])  # as it is written, with ${…} for its secrets
        anywhere = _digest([settings.target, {"written": settings.written_folder}])
        self._names = (anywhere, here) if documents.is_shared else (here, anywhere)
        self._server = self._names[0]
        self._key, self._moved_key = (cache_key(file_name(name), one) for one in self._names)
        self._is_moved = False

    @property
    def has_lost(self) -> bool:
        """Whether something may have been stored of it that is gone."""
        return self._documents.has_lost

    def nothing(self) -> CachedServer:
        """Return the entry of a server that was never connected."""
        return CachedServer(server=self._server)

    def read(self) -> CachedServer:
        return self.load()[1] or self.nothing()

    def load(self) -> tuple[Version, CachedServer | None]:
        """Return what is stored, and its version. None: it can't be read now, and may well be there."""
        version = self.version()
        try:
            version, body = self._documents.load(self._key)
            if is_moved := body is None:  # it may have been moved here from the other kind of database
                version, body = self._documents.load(self._moved_key)
            cached = self.nothing() if body is None else msgspec.json.decode(body, type=CachedServer)
        except DatabaseError as error:
            return version, self.nothing() if error.is_damaged else None
        except (msgspec.MsgspecError, RecursionError):
            return version, self.nothing()
        if cached.server not in self._names:
            return version, self.nothing()
        self._is_moved = is_moved and body is not None
        return version, replace(cached, server=self._server, approved=_with_all_parts(cached))

    def write(self, cached: CachedServer) -> Version:
        """Store all of it or nothing, and return the new version."""
        data = msgspec.json.format(msgspec.json.encode(cached), indent=1)
        try:
            version = self._documents.write(self._key, data)
            if self._is_moved:
                self._is_moved = False
                self._documents.delete(self._moved_key)  # else it would count again when all is moved back
            return version
        except DatabaseError:
            return self.version()

    def delete(self) -> None:
        """Delete what is stored, unless replicas share it: others may still have the server under this name, and would
        approve anew whatever it lists.
        """
        if not self._documents.is_shared:
            with suppress(DatabaseError):
                for key in (self._key, self._moved_key):
                    self._documents.delete(key)

    def version(self) -> Version:
        """Return a value that differs after any write."""
        try:
            found = self._documents.version(self._key)
            return self._documents.version(self._moved_key) if found is None else found
        except DatabaseError:
            return None


def count_approved(body: bytes) -> tuple[int, int]:
    """Return whether the server of a document was approved, as 0 or 1, and how many definitions are pinned.

    Raises ValueError, RecursionError.
    """
    approved = msgspec.json.decode(body, type=CachedServer).approved
    return int(approved is not None), len(approved or ())


def digests(definition: Definition) -> dict[str, str]:
    """Return digests of the parts of a definition that matter for trust."""
    digests = {part: _digest([definition.get(key) for key in keys]) for part, keys in PARTS.items()}
    # Arguments can be given by their place: the order counts, too, which a digest of a mapping does not see.
    schema = definition.get("inputSchema")
    order = list(schema.get("properties") or ()) if isinstance(schema, dict) else []
    return {**digests, "parameters": _digest([digests["parameters"], order])}


def digests_by_name(tools: Iterable[Definition], offers: Offers) -> list[Definition]:
    """Return all that a model may read of a server before it is called, each under one name: tools and prompts."""
    prompts = (
        {**one, "name": f"prompt {one.get('name')}", "inputSchema": one.get("arguments")} for one in offers.prompts
    )
    return first_by_name([*tools, *prompts])


def first_by_name(definitions: Iterable[Definition]) -> list[Definition]:
    """Return the definitions by name. Of those with the same name, the first one is used."""
    found: dict[str, Definition] = {}
    for definition in definitions:
        found.setdefault(str(definition.get("name")), definition)
    return list(found.values())


def _with_all_parts(cached: CachedServer) -> dict[str, dict[str, str]] | None:
    """Return the approved digests, with those of parts that were not pinned when a tool was approved.

    Their definition was stored in full, so what it was then is known: an upgrade is not a change.
    """
    if cached.approved is None or all(PARTS.keys() <= parts.keys() for parts in cached.approved.values()):
        return cached.approved
    stored = {str(one.get("name")): one for one in digests_by_name(cached.tools or (), cached.offers)} | cached.former
    return {
        name: {**digests(stored[name]), **parts} if name in stored else parts for name, parts in cached.approved.items()
    }


def changes(cached: CachedServer, tools: Sequence[Definition], strict: bool) -> dict[str, list[str]]:
    """Return tools that differ from the approved ones, and in what. New tools count only in strict mode."""
    if cached.approved is None:
        return {}
    found: dict[str, list[str]] = {}
    for tool in tools:
        before, now = cached.approved.get(tool["name"]), digests(tool)
        if before is None:
            if strict:
                found[tool["name"]] = ["new"]
        elif parts := [part for part in PARTS if before.get(part, now[part]) != now[part]]:
            found[tool["name"]] = parts
    return found


def approval(cached: CachedServer, tools: Sequence[Definition], everything: bool) -> dict[str, dict[str, str]]:
    """Return what is approved from now on: what was before, and what is new; or everything as it is now."""
    known = cached.approved or {}
    return {**known, **{tool["name"]: digests(tool) for tool in tools if everything or tool["name"] not in known}}


def former(cached: CachedServer, changed: Mapping[str, Any]) -> dict[str, Definition]:
    """Return the approved definitions of tools that have changed."""
    before = {str(one["name"]): one for one in digests_by_name(cached.tools or (), cached.offers)}
    kept = {name: cached.former.get(name) or before.get(name) for name in changed}
    return {name: tool for name, tool in kept.items() if tool is not None}


def as_trusted(cached: CachedServer, definition: Definition) -> Definition:
    """Return the definition with no looser hints than those that it had when it was approved.

    Else a server could have its tools run without anybody being asked, by calling them harmless one day. How it was
    is not known of one that went away meanwhile: then it was as strict as can be.
    """
    name = str(definition.get("name"))
    approved = (cached.approved or {}).get(name)
    if approved is None or approved.get("behaviour") == digests(definition)["behaviour"]:
        return definition
    before, now = _hints(cached.former.get(name)), _hints(definition)
    looser = {hint for hint, loose in LOOSENING.items() if before.get(hint) is not loose and now.get(hint) is loose}
    strict = {hint: before.get(hint, not LOOSENING[hint]) for hint in looser}
    if "readOnlyHint" not in before:  # nobody has said that it changes something
        strict.pop("readOnlyHint", None)
    return {**definition, "annotations": {hint: value for hint, value in now.items() if hint not in looser} | strict}


def _hints(definition: Definition | None) -> Mapping[str, Any]:
    found = (definition or {}).get("annotations")
    return found if isinstance(found, Mapping) else {}


def difference(before: Definition | None, now: Definition) -> list[str]:
    """Return the difference in lines that begin with - or +, as programmers read it."""
    from difflib import unified_diff

    def written(tool: Definition) -> list[str]:
        lines = str(tool.get("description") or "").splitlines()
        rest = {key: tool[key] for key in ("inputSchema", "outputSchema", *PASSED) if key in tool}
        return [*lines, *msgspec.json.format(msgspec.json.encode(rest), indent=2).decode().splitlines()]

    old = [] if before is None else written(before)
    return list(unified_diff(old, written(now), lineterm="", n=2))[2:]


def file_name(name: str) -> str:
    """Return a safe file name for a server's name."""
    quoted = quote(name, safe=" ").replace(".", "%2E")  # what comes behind a dot tells our files apart
    return quoted if len(quoted) <= MAX_NAME else f"{quoted[:MAX_NAME]}-{_digest(name)[:8]}"


def cache_key(file_name: str, server: str) -> str:
    """Return the key of the document. `server` is the digest of what the server is."""
    return f"{file_name}@{server[:16]}"


def _digest(value: Any) -> str:
    return sha256(msgspec.json.encode(value, order="deterministic")).hexdigest()[:32]
