"""Detects and logs replicas that have other packs, settings or tools than this one.

Each replica writes a digest of every part of its catalogue into its row: files and tools of packs, config keys, tools
of MCP servers. Bundles are left out, because they are in the database. So are parts that may differ between machines:
addresses, ports, paths outside the config's folder and the values of secrets. The digests are keyed, so that readers of
the database can't guess settings. Digests are compared only if they are signed with the same key.
"""

import hmac
import logging
import os
from collections.abc import Iterable, Mapping
from hashlib import sha256
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

import msgspec

from onetool.cluster import Replica, derived_key
from onetool.config.load import pack_paths
from onetool.config.model import Keys
from onetool.config.pin import packs_at
from onetool.core.file_facts import digest_of
from onetool.services.secrets import Secret

if TYPE_CHECKING:
    from onetool.app import App
    from onetool.cluster.cluster import Cluster
    from onetool.config import Config

log = logging.getLogger("onetool.cluster")
CATALOGUE = "catalogue"
LOG_AFTER_S = 10.0  # seconds that a difference must last before it is logged: replicas restart one after the other
MAX_PARTS = 1000  # of one kind; the others share one digest
MAX_NAMED = 10  # parts in a message
OWN_KEYS = {"cluster", "database", "secrets", "include", "packs", "watch", "trust", "prompts"}  # may differ per machine
OWN_HTTP = {"host", "port"}
SAME_FILES = "give all replicas the same config, packs and version, then: onetool call ot.reload"
SERVER = "tools of server"

Parts = dict[str, dict[str, str]]  # digests by kind and name


class Drift:
    """A monitor that writes the parts of this replica into its row after each change, and logs lasting differences."""

    def __init__(self, cluster: "Cluster", app: "App") -> None:
        self._members, self._app = cluster.members, app
        self._key = cluster.settings.key
        self._seen: tuple[Any, ...] = ()
        self._since: dict[str, float] = {}
        self._logged: set[str] = set()
        self._members.on_beat(self._update)

    def _update(self) -> None:
        """Compare this replica with its earlier state and with the other replicas, in the heartbeat's thread."""
        seen = (self._app.config, *self._app.catalog.registry.own())
        if len(seen) != len(self._seen) or any(new is not old for new, old in zip(seen, self._seen, strict=True)):
            self._members.catalogue = sealed(parts_of(self._app, self._key), self._key, self._members.id)
            self._seen = seen
        now, own = monotonic(), opened(self._members.catalogue, self._key, self._members.id)
        found = {
            f"replica {replica.id} at {replica.place} differs from this one: {text}"
            for replica in self._members.alive()
            if replica.id != self._members.id
            and (text := difference(own, opened(replica.catalogue, self._key, replica.id)))
        }
        self._since = {text: self._since.get(text, now) for text in found}
        due = {text for text, since in self._since.items() if now - since >= LOG_AFTER_S}
        for text in sorted(due - self._logged):
            log.warning("%s (%s)", text, SAME_FILES)
        self._logged = due


def drifts(replicas: Iterable[Replica], key: bytes) -> list[tuple[Replica, str]]:
    """Return the replicas that differ from the oldest one, with a message that names it and the differences."""
    known = [replica for replica in replicas if replica.is_known]
    parts = [(replica, own) for replica in known if (own := opened(replica.catalogue, key, replica.id))]
    if not parts:
        return []
    oldest, expected = parts[0]
    place = f"{oldest.id} at {oldest.place}"
    texts = [(replica, difference(expected, own, f"on {place}")) for replica, own in parts[1:]]
    return [(replica, f"{place}: {text}") for replica, text in texts if text]


def parts_of(app: "App", key: bytes) -> Parts:
    """Return a digest of each part of an app's catalogue and config."""
    config = app.config
    tools: dict[str, list[Any]] = {}
    for spec in app.catalog.registry.own():
        server = spec.source.partition("proxy:")[2]
        described = (spec.name, spec.description, spec.input_schema, spec.output_schema)
        tools.setdefault(f"{SERVER} {server}" if server else f"pack {spec.pack}", []).append(described)
    kinds = {
        "packs": {
            name: sorted(entries, key=lambda entry: entry[0]) for name, entries in tools.items() if SERVER not in name
        },
        "servers": {
            name: sorted(entries, key=lambda entry: entry[0]) for name, entries in tools.items() if SERVER in name
        },
        "files": {
            f"file {os.path.relpath(file, path.parent)}": digest_of(file)
            for path in pack_paths(config)
            for file in packs_at([path], config.beside).files
        },
        "settings": {f"setting {key}": _setting(config, key) for key in Keys.__struct_fields__ if key not in OWN_KEYS},
    }
    secret, folder = derived_key(key, CATALOGUE), os.path.realpath(config.beside)
    return {kind: _digests(values, secret, folder) for kind, values in kinds.items()}


def _setting(config: "Config", key: str) -> Any:
    value = getattr(config, key)
    if key == "http":
        return {name: getattr(value, name) for name in value.__struct_fields__ if name not in OWN_HTTP}
    if key == "tools":
        return [tool.definition for tool in value]  # without file and line
    if key == "servers":  # the program path and the config's folder differ between machines
        return {
            name: (server.command_line, server.written_folder, server.env, server.url, server.headers)
            for name, server in value.items()
        }
    return value


def _digests(values: Mapping[str, Any], key: bytes, folder: str) -> dict[str, str]:
    def plain(value: Any) -> Any:
        """Return a value that can be encoded: a secret as written in the config, a path relative to the config."""
        if isinstance(value, Secret):
            return value.shown
        if isinstance(value, Path):
            real = Path(os.path.realpath(value))
            return str(real.relative_to(folder)) if real.is_relative_to(folder) else real.name
        return dict(value) if isinstance(value, Mapping) else str(value)

    names = sorted(values)
    parts = {name: values[name] for name in names[:MAX_PARTS]}
    if len(names) > MAX_PARTS:
        parts["others"] = [(name, values[name]) for name in names[MAX_PARTS:]]
    encode = msgspec.json.Encoder(enc_hook=plain, order="deterministic").encode
    return {name: hmac.new(key, encode(value), sha256).hexdigest()[:12] for name, value in parts.items()}


def sealed(parts: Parts, key: bytes, replica: str) -> str:
    """Return the parts with a signature, for the row of this replica."""
    text = msgspec.json.encode(parts).decode()
    return f"{_signature(text, key, replica)}:{text}"


def opened(sealed: str, key: bytes, replica: str) -> Parts | None:
    """Return the parts of a replica; None if they are unsigned, or signed with another key."""
    signature, _, text = sealed.partition(":")
    if not hmac.compare_digest(signature.encode(), _signature(text, key, replica).encode()):
        return None
    try:
        return msgspec.json.decode(text, type=Parts)
    except msgspec.MsgspecError:
        return None


def _signature(text: str, key: bytes, replica: str) -> str:
    return hmac.new(derived_key(key, CATALOGUE), f"{replica}:{text}".encode(), sha256).hexdigest()


def difference(here: Parts | None, there: Parts | None, place: str = "here") -> str:
    """Describe how `there` differs from `here`, which is called `place`; empty if they are equal.

    Tools of a server count only if both have listed them, because servers connect when they are needed.
    """
    if here is None or there is None:
        return ""
    differences: list[str] = []
    for kind in here.keys() & there.keys():
        ours, theirs = here[kind], there[kind]
        differences += (f"other {name}" for name in ours.keys() & theirs.keys() if ours[name] != theirs[name])
        if kind != "servers":
            differences += (f"{name} only there" for name in theirs.keys() - ours.keys())
            differences += (f"{name} only {place}" for name in ours.keys() - theirs.keys())
    more = f" and {len(differences) - MAX_NAMED} more" if len(differences) > MAX_NAMED else ""
    return ", ".join(sorted(differences)[:MAX_NAMED]) + more
