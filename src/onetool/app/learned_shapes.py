"""`LearnedShapes`: the return shapes of tools without an output schema, learned from their first results.

The recorder's thread inspects the values, off the path of the calls. Names and types of fields are stored, one document
per pack, and shared by all processes. An entry is valid while the tool's definition and source are unchanged.

Keys in one caller's results may be private data, so others don't see them: a caller sees the field names of its own
results, and those that occur in results of two callers.
"""

import os
from collections.abc import Callable
from contextlib import suppress
from functools import cached_property, lru_cache
from threading import Lock
from typing import TYPE_CHECKING, Any

import msgspec

from onetool.core.errors import ConfigError
from onetool.core.inferred_schema import ObservedValues, schema_of, shared_shape
from onetool.core.json_data import freeze
from onetool.core.principal import lasting_owner
from onetool.core.state_folders import STATE_FILE
from onetool.core.type_names import is_vague
from onetool.database import DatabaseError

if TYPE_CHECKING:
    from onetool.app.runtime import CurrentRuntime
    from onetool.core.context import CallEvent
    from onetool.core.spec import ToolSpec
    from onetool.database.documents import Documents, Version

OWN_PACK = "ot"  # its `call` returns the result of any other tool
LOCK_S = 5.0  # to wait for another process that writes the same pack
RETRY_S = 5.0
MAX_TOOLS = 2_000  # per pack
MAX_CALLERS = 5  # per tool whose results are inspected

Entries = dict[str, dict[str, Any]]
"""The learned shapes of a pack, by tool name."""


class LearnedShapes:
    """The learned return shapes of all tools. Thread-safe. Reading doesn't create a state database."""

    def __init__(self, current: "CurrentRuntime") -> None:
        self._current = current
        self._packs: dict[str, tuple[Version, Entries]] = {}
        self._changed: dict[str, LearnedValues] = {}  # by tool name
        self._writing = Lock()  # the recorder's thread must not store what was just forgotten

    def track(self, spec: "ToolSpec", definition: Callable[[], bytes] | None = None) -> None:
        """Start learning the return shape of a tool without an output schema.

        `definition` returns additional text that the shape depends on.
        """
        schema = spec.output_schema
        if (
            spec.observed is None
            and spec.pack != OWN_PACK
            and not spec.hidden
            and (not schema or is_vague(schema, schema))
        ):
            msgspec.structs.force_setattr(spec, "observed", LearnedValues(self, spec, definition))

    def observe(self, event: "CallEvent") -> None:
        """Learn from a successful call."""
        values = None if event.spec is None else event.spec.observed
        if event.value is None or not isinstance(values, LearnedValues):
            return
        if not values.results:
            values.read()
        if (seen := values.of_caller(event.principal.lasting_owner)) is None:
            return
        with suppress(RuntimeError):  # a pack may change its value at the same time
            if seen.note(event.value) or seen.is_full:  # else there is nothing new to store
                self._changed[values.name] = values

    def write(self, is_last: bool = False) -> float | None:
        """Store new observations. Returns the seconds until the next attempt if this one failed."""
        with self._writing:
            packs: dict[str, list[LearnedValues]] = {}
            for values in [*self._changed.values()]:
                packs.setdefault(values.pack, []).append(values)
            for pack, changed in packs.items():
                try:
                    with self._documents().locked(pack, LOCK_S) as held:
                        entries = _entries(held.load().body)
                        for values in changed:
                            values.add(entries.pop(values.name, None))
                            entries[values.name] = values.dump()  # at the end: the oldest entries are dropped first
                        entries = dict([*entries.items()][-MAX_TOOLS:])
                        self._packs[pack] = held.write(msgspec.json.encode(entries)), entries
                except (DatabaseError, ConfigError, TimeoutError):
                    return None if is_last else RETRY_S
                for values in changed:
                    self._changed.pop(values.name, None)
            return None

    def forget(self, pack: str) -> None:
        """Delete the shapes of a removed pack, also those that are waiting to be stored."""
        self._current.runtime.recorder.flush()  # observes the latest calls
        with self._writing:
            for name, values in [*self._changed.items()]:
                if values.pack == pack:
                    self._changed.pop(name, None)
            if self._has_documents():
                with suppress(DatabaseError, ConfigError):
                    self._documents().delete(pack)

    def _documents(self) -> "Documents":
        return self._current.runtime.documents("shapes")

    def _has_documents(self) -> bool:
        config = self._current.runtime.config
        return config.database is not None or os.path.lexists(config.home / STATE_FILE)

    def entry(self, pack: str, name: str, version: "Version") -> "tuple[Version, dict[str, Any] | None]":
        """Return the version of a pack's document and a tool's entry in it; no entry if `version` is current."""
        if not self._has_documents():
            return None, None
        from onetool.sdk.context import is_on_event_loop  # listing tools needs no document

        try:
            documents = self._documents()
            now = documents.version(pack)
            known = self._packs.get(pack)
            if known is None or known[0] != now:
                if documents.is_shared and is_on_event_loop():
                    return version, None  # a signature in an error must not wait for another machine
                stored = documents.load(pack)
                known = self._packs[pack] = stored.version, _entries(stored.body)
        except (DatabaseError, ConfigError):
            return version, None
        return known[0], None if known[0] == version else known[1].get(name)


class LearnedValues(ObservedValues):
    """The observed values of one tool, in this and other processes, by the owners of the calls."""

    def __init__(self, shapes: LearnedShapes, spec: "ToolSpec", definition: Callable[[], bytes] | None) -> None:
        super().__init__()
        self.name, self.pack = spec.name, spec.pack
        self._shapes = shapes
        self._callers: dict[str, ObservedValues] = {}
        self._version: Version = None
        self._parts = (
            spec.description,
            spec.input_schema,
            spec.output_schema,
            spec.source,
            spec.server_listing,
            spec.defined_in,
        )
        self._definition = definition

    @cached_property
    def digest(self) -> str:
        """A digest of the tool's definition and source."""
        from hashlib import sha256  # slow to load, and not needed to list tools

        *parts, defined_in = self._parts
        file = (defined_in or "").rpartition(":")[0]
        source = _file_digest(file, *_stamp(file)) if file else b""
        more = b"" if self._definition is None else self._definition()
        text = msgspec.json.encode(parts, order="deterministic", enc_hook=repr)
        return sha256(b"\0".join((text, source, more))).hexdigest()[:32]

    @property
    def results(self) -> int:
        return sum(seen.results for seen in [*self._callers.values()])

    def of_caller(self, owner: str) -> ObservedValues | None:
        """Return the shape learned from a caller's results; None if there are too many callers."""
        if len(self._callers) < MAX_CALLERS:
            return self._callers.setdefault(owner, ObservedValues())
        return self._callers.get(owner)

    def learns_from(self, owner: str) -> bool:
        seen = self._callers.get(owner)
        return len(self._callers) < MAX_CALLERS if seen is None else not seen.is_full

    def read(self) -> None:
        """Add the observations that other processes have stored."""
        self._version, known = self._shapes.entry(self.pack, self.name, self._version)
        self.add(known)

    def add(self, data: "dict[str, Any] | None") -> None:
        """Learn from a `dump` of the same tool. Other data is ignored."""
        if data is None or data.get("digest") != self.digest or not isinstance(callers := data.get("callers"), dict):
            return
        for owner, known in callers.items():
            if (seen := self.of_caller(owner)) is not None:
                seen.add(known)

    def dump(self) -> dict[str, Any]:
        return {"digest": self.digest, "callers": {owner: seen.dump() for owner, seen in [*self._callers.items()]}}

    def schema(self) -> Any:
        """Return the schema that the current caller may see."""
        owner = lasting_owner()
        if self.learns_from(owner):
            self.read()
        callers = dict(self._callers)
        own = callers.pop(owner, None)
        if not callers:
            return None if own is None else own.schema()
        mine = None if own is None else own.shape
        shapes = [*([] if mine is None else [mine]), *(seen.shape for seen in callers.values())]
        shape = shared_shape(shapes, mine)
        return freeze(schema_of(shape)) or None


def _entries(body: bytes | None) -> Entries:
    try:
        return msgspec.json.decode(body or b"{}", type=Entries)
    except (msgspec.DecodeError, RecursionError):  # written by something else: overwrite it
        return {}


def _stamp(file: str) -> tuple[int, int]:
    try:
        found = os.stat(file)
    except OSError:
        return 0, 0
    return found.st_mtime_ns, found.st_size


@lru_cache(256)
def _file_digest(file: str, _modified_at: int, _size: int) -> bytes:
    from hashlib import sha256

    try:
        with open(file, "rb") as source:
            return sha256(source.read()).digest()
    except OSError:
        return b""
