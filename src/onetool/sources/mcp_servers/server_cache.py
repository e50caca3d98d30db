"""The stored state of a server: its tools, the approved definitions, and the transport that worked.

With this state, tools can be listed before their server is connected, and changes to approved definitions are noticed.
Each server has one document. A server is identified by its command or URL: if that changes, the state is discarded.

The working folder of a command is part of its identity. On one machine that is the folder itself. In a database that
machines share it is the folder as written in the config, because the config may lie in different folders. If configs
differ for the same name, each has its own document.
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
from onetool.database.encryption import DamagedSealError
from onetool.sources.mcp_servers.settings import ServerSettings

Definition = Mapping[str, Any]
"""A tool as its server lists it."""

PARTS = {  # the pinned parts of a definition, and their names in messages
    "description": ("title", "description"),
    "parameters": ("inputSchema",),
    "output": ("outputSchema",),
    "behaviour": ("annotations",),
    "metadata": ("icons", "_meta"),
}
PASSED = ("title", "annotations", "icons", "_meta")  # passed to our clients unchanged
# Values of hints with which OneTool or clients run a tool without confirmation, or repeat a call.
LOOSENING = {"readOnlyHint": True, "idempotentHint": True, "destructiveHint": False, "openWorldHint": False}
MAX_NAME = 100


class Offers(msgspec.Struct, frozen=True, kw_only=True):
    """The prompts, resources and templates of a server, as listed."""

    prompts: tuple[Definition, ...] = ()
    resources: tuple[Definition, ...] = ()
    templates: tuple[Definition, ...] = ()


class ServerListing(msgspec.Struct, frozen=True):
    """The listing that a server gave when it was connected."""

    tools: Sequence[Definition]
    offers: Offers
    version: str | None
    way: str


class CachedServer(msgspec.Struct, frozen=True, kw_only=True):
    """The content of the document."""

    server: str = ""  # a digest of the server's identity
    way: str | None = None  # the last connection: the client's mode, or "sse"
    version: str | None = None  # the server's own name and version
    tools: tuple[Definition, ...] | None = None  # None: never listed
    unusable: dict[str, str] = {}  # unusable tools, with the reasons
    approved: dict[str, dict[str, str]] | None = None  # for each tool the digests of its parts
    failed: float = 0.0  # the time of a failed connection, while its tools were unknown
    former: dict[str, Definition] = {}  # tools that have changed, as they were before
    offers: Offers = Offers()


class ServerCache:
    """The stored state of one server. Invalid data counts as empty, and failed writes are ignored."""

    def __init__(self, documents: Documents, name: str, settings: ServerSettings) -> None:
        self._documents = documents
        local = _digest([settings.target, str(settings.cwd)])  # as written, with ${…} for secrets
        portable = _digest([settings.target, {"written": settings.written_folder}])
        self._names = (portable, local) if documents.is_shared else (local, portable)
        self._server = self._names[0]
        self._key, self._moved_key = (cache_key(file_name(name), one) for one in self._names)
        self._is_moved = False

    def nothing(self) -> CachedServer:
        """Return the entry of a server that was never connected."""
        return CachedServer(server=self._server)

    def read(self) -> CachedServer:
        return self.load()[1] or self.nothing()

    def load(self) -> tuple[Version, CachedServer | None]:
        """Return the version of the stored state, and the state, or None if it can't be read now but may exist."""
        version = self.version()
        try:
            version, body = self._documents.load(self._key)
            if is_moved := body is None:  # the state may have been moved here from another kind of database
                version, body = self._documents.load(self._moved_key)
            cached = self.nothing() if body is None else msgspec.json.decode(body, type=CachedServer)
        except DamagedSealError:
            return version, self.nothing()
        except DatabaseError:
            return version, None
        except (msgspec.MsgspecError, RecursionError):
            return version, self.nothing()
        if cached.server not in self._names:
            return version, self.nothing()
        self._is_moved = is_moved and body is not None
        return version, replace(cached, server=self._server)

    def write(self, cached: CachedServer) -> Version:
        """Store the state atomically and return its new version."""
        data = msgspec.json.format(msgspec.json.encode(cached), indent=1)
        try:
            version = self._documents.write(self._key, data)
            if self._is_moved:
                self._is_moved = False
                self._documents.delete(self._moved_key)  # otherwise it would be used again after moving back
            return version
        except DatabaseError:
            return self.version()

    def delete(self) -> None:
        """Delete the stored state unless replicas share it: another replica may still have the server, and would
        approve whatever it lists next.
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
    """Return whether the document's server was approved, as 0 or 1, and the number of pinned definitions.

    Raises ValueError or RecursionError.
    """
    approved = msgspec.json.decode(body, type=CachedServer).approved
    return int(approved is not None), len(approved or ())


def digests(definition: Definition) -> dict[str, str]:
    """Return digests of the parts of a definition that matter for trust."""
    digests = {part: _digest([definition.get(key) for key in keys]) for part, keys in PARTS.items()}
    # The order of properties matters for positional arguments, but not for the digest of a mapping.
    schema = definition.get("inputSchema")
    order = list(schema.get("properties") or ()) if isinstance(schema, dict) else []
    return {**digests, "parameters": _digest([digests["parameters"], order])}


def pinned_definitions(tools: Iterable[Definition], offers: Offers) -> list[Definition]:
    """Return the tools and prompts, which a model may read before calls, with unique names."""
    prompts = (
        {**entry, "name": f"prompt {entry.get('name')}", "inputSchema": entry.get("arguments")}
        for entry in offers.prompts
    )
    return first_by_name([*tools, *prompts])


def first_by_name(definitions: Iterable[Definition], key: str = "name") -> list[Definition]:
    """Return the definitions without later ones of the same name. `key` is the member with the name."""
    found: dict[str, Definition] = {}
    for definition in definitions:
        found.setdefault(str(definition.get(key)), definition)
    return list(found.values())


def changes(cached: CachedServer, tools: Sequence[Definition], strict: bool) -> dict[str, list[str]]:
    """Return tools that differ from the approved ones, with the changed parts. New tools count only in strict mode."""
    if cached.approved is None:
        return {}
    found: dict[str, list[str]] = {}
    for tool in tools:
        before, now = cached.approved.get(tool["name"]), digests(tool)
        if before is None:
            if strict:
                found[tool["name"]] = ["new"]
        elif parts := [part for part in PARTS if before.get(part) != now[part]]:
            found[tool["name"]] = parts
    return found


def approval(cached: CachedServer, tools: Sequence[Definition], everything: bool) -> dict[str, dict[str, str]]:
    """Return the new approvals: the previous ones plus new tools, or everything as listed now."""
    known = cached.approved or {}
    return {**known, **{tool["name"]: digests(tool) for tool in tools if everything or tool["name"] not in known}}


def former(cached: CachedServer, changed: Mapping[str, Any]) -> dict[str, Definition]:
    """Return the approved definitions of tools that have changed."""
    before = {str(one["name"]): one for one in pinned_definitions(cached.tools or (), cached.offers)}
    kept = {name: cached.former.get(name) or before.get(name) for name in changed}
    return {name: tool for name, tool in kept.items() if tool is not None}


def as_trusted(cached: CachedServer, definition: Definition) -> Definition:
    """Return the definition with hints no looser than the approved ones.

    Otherwise, a server could make clients run its tools without confirmation by declaring them harmless later. If the
    approved hints are unknown, because the tool was gone for a while, the strictest hints are assumed.
    """
    name = str(definition.get("name"))
    approved = (cached.approved or {}).get(name)
    if approved is None or approved.get("behaviour") == digests(definition)["behaviour"]:
        return definition
    before, now = _hints(cached.former.get(name)), _hints(definition)
    looser = {hint for hint, loose in LOOSENING.items() if before.get(hint) is not loose and now.get(hint) is loose}
    strict = {hint: before.get(hint, not LOOSENING[hint]) for hint in looser}
    if "readOnlyHint" not in before:  # the default is the strict value
        strict.pop("readOnlyHint", None)
    return {**definition, "annotations": {hint: value for hint, value in now.items() if hint not in looser} | strict}


def _hints(definition: Definition | None) -> Mapping[str, Any]:
    found = (definition or {}).get("annotations")
    return found if isinstance(found, Mapping) else {}


def difference(before: Definition | None, now: Definition) -> list[str]:
    """Return a diff whose lines begin with - or +."""
    from difflib import unified_diff

    def lines_of(tool: Definition) -> list[str]:
        description = str(tool.get("description") or "").splitlines()
        rest = {key: tool[key] for key in ("inputSchema", "outputSchema", *PASSED) if key in tool}
        return [*description, *msgspec.json.format(msgspec.json.encode(rest), indent=2).decode().splitlines()]

    old = [] if before is None else lines_of(before)
    return list(unified_diff(old, lines_of(now), lineterm="", n=2))[2:]


def file_name(name: str) -> str:
    """Return a safe file name for a server's name."""
    quoted = quote(name, safe=" ").replace(".", "%2E")  # the suffix after a dot distinguishes our files
    return quoted if len(quoted) <= MAX_NAME else f"{quoted[:MAX_NAME]}-{_digest(name)[:8]}"


def cache_key(file_name: str, server: str) -> str:
    """Return the key of the document. `server` is the digest of the server's identity."""
    return f"{file_name}@{server[:16]}"


def _digest(value: Any) -> str:
    return sha256(msgspec.json.encode(value, order="deterministic")).hexdigest()[:32]
