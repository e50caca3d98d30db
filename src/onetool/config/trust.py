"""Decides whether a project's folder may be used, and stores which folders the user trusts.

A folder is not trusted because the current directory is in it. The user trusts it once with `onetool trust`, which
stores what its config says. A change asks again, and shows the difference. The code of its packs may change, unless the
user's own config says `trust: strict`.

`~/.onetool/trust.json` is never in a project, is ignored if others can write to it, and is replaced atomically under a
lock:

    {"version": 2,
     "folders": {"/real/path/.onetool": {"at": …, "lines": {…}, "packs": {…}, "programs": {…}, "files": {…}, …}},
     "owners": {"/real/path": {"at": …, "uid": 1000, "writable": false}}}
"""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from onetool.config.file_checks import CONFIG_FILE, ownership_mistake
from onetool.core.errors import ConfigError, Mistake
from onetool.core.file_facts import is_unchanged
from onetool.core.os_files import replace_file
from onetool.sources.mcp_servers.program import ServerProgram, why_changed

if TYPE_CHECKING:
    from onetool.config.pin import Seen

TRUST_FILE = "trust.json"
FILE_VERSION = 2
READABLE_VERSIONS = (1, 2)  # the folders of version 1 are asked about once
MAX_FILE_BYTES = 16 * 1024 * 1024

TrustEntries = dict[str, dict[str, Any]]


class TrustStore:
    """The entries of `trust.json`, read when first needed."""

    def __init__(self, own: Path) -> None:
        """Create a store in `own`, the user's `.onetool`."""
        self.file = own / TRUST_FILE
        self._read: dict[str, TrustEntries] | None = None

    @property
    def folders(self) -> TrustEntries:
        return self._content()["folders"]

    @property
    def owners(self) -> TrustEntries:
        return self._content()["owners"]

    def folder(self, folder: Path) -> dict[str, Any] | None:
        return self.folders.get(os.path.realpath(folder))

    def change(self, change: Callable[[dict[str, TrustEntries]], None]) -> None:
        """Read the file again, change its content and write it. An OSError leaves it unchanged."""
        from onetool.core.flock import lock_beside

        self.file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with lock_beside(self.file):
            content = _content_of(self.file)
            change(content)
            text = msgspec.json.format(msgspec.json.encode({"version": FILE_VERSION, **content}), indent=1)
            replace_file(Path(os.path.realpath(self.file)), text)  # a link of the user's own stays a link
        self._read = content

    def _content(self) -> dict[str, TrustEntries]:
        if self._read is None:
            self._read = _content_of(self.file)
        return self._read


def _content_of(file: Path) -> dict[str, TrustEntries]:
    """Return the stored entries; empty if the file can't be read or others can write to it."""
    found: Any = None
    with suppress(OSError, msgspec.DecodeError, RecursionError):
        if ownership_mistake(file, file.parent.parent, {}) is None and file.stat().st_size <= MAX_FILE_BYTES:
            found = msgspec.json.decode(file.read_bytes())
    found = found if isinstance(found, dict) and found.get("version") in READABLE_VERSIONS else {}
    content: dict[str, TrustEntries] = {}
    for part in ("folders", "owners"):
        entries = found.get(part)
        entries = entries if isinstance(entries, dict) else {}
        content[part] = {key: one for key, one in entries.items() if isinstance(one, dict)}
    return content


# The decision about a folder

TRUST_VARIABLE = "ONETOOL_TRUST"
STRICT = b"strict"
MAX_SHOWN = 3


class Pin(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What a folder said when it was trusted: see `onetool.config.pin.Seen`."""

    at: str
    lines: dict[str, str]
    packs: dict[str, str] = {}
    pack_places: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    programs: dict[str, ServerProgram] = {}
    files: dict[str, str] = {}
    accepted: tuple[str, ...] = ()  # additional secrets that it may use
    own_packs: bool = False  # whether packs may be added to its own folder


def pin_of(entry: Mapping[str, Any] | None) -> Pin | None:
    """Return the pin in an entry of `trust.json`; None for an entry of an older version."""
    with suppress(msgspec.ValidationError):
        return msgspec.convert(entry, Pin | None)
    return None


class Untrusted(msgspec.Struct, frozen=True, kw_only=True):
    """A folder that was found but is not used, and the reason."""

    folder: Path
    config: Path | None = None
    new: tuple[str, ...] = ()  # the difference since it was trusted
    mistake: Mistake | None = None  # about its owner or mode: it can't be trusted
    is_old: bool = False  # trusted by an earlier version, which stored something else
    then: str = ""  # the command that loads it into a running server after that

    def __str__(self) -> str:
        """Return the reason in one line, with the command that fixes it."""
        if self.mistake is not None:
            return str(self.mistake)
        return f"{self.folder} {self.state}, so nothing in it is used: run {self._commands}"

    @property
    def short(self) -> str:
        """The reason in a few words, for an error message."""
        return f"{self.folder} {self._verdict}: run {self._commands}" if self.mistake is None else str(self.mistake)

    @property
    def state(self) -> str:
        """The state in words: not trusted yet, or the keys that have changed since; logs and models see no values."""
        if not self.new:
            return self._verdict
        keys = list(dict.fromkeys(line.partition(": ")[0] for line in self.new))
        more = f" and {len(keys) - MAX_SHOWN} more" if len(keys) > MAX_SHOWN else ""
        return f"{self._verdict} ({'; '.join(keys[:MAX_SHOWN])}{more})"

    @property
    def command(self) -> str:
        """The command that fixes it."""
        return "onetool trust" if self.mistake is None else "onetool check"

    @property
    def _commands(self) -> str:
        return f"{self.command}, then {self.then}" if self.then else self.command

    @property
    def _verdict(self) -> str:
        if self.is_old:
            return "was trusted by an earlier version of OneTool, which asks once more"
        return "has changed since you trusted it" if self.new else "is not trusted yet"


class Trusted(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of a project that are trusted, and how its servers start."""

    names: frozenset[str] = frozenset()  # of secrets that it may read from the environment
    programs: dict[str, ServerProgram] | None = None  # as they were when trusted; None: as they are now
    own_modules: frozenset[str] = frozenset()  # servers whose `python -m NAME` finds NAME in their folder
    moved: tuple[str, ...] = ()  # commands that now find another program, outside the project


def trusted_parts(
    folder: Path, config: Path | None, store: TrustStore, env: Mapping[str, str], own: Path
) -> Trusted | Untrusted:
    """Return the parts of a project that may be used, or the reason why none of them is."""
    entry = store.folder(folder)
    pin = pin_of(entry)
    if env.get(TRUST_VARIABLE) == "1":
        from onetool.config.pin import see

        try:
            seen = see(folder, config)
        except ConfigError:  # loading it reports the mistakes
            return Trusted()
        accepted = pin.accepted if pin else ()
        return Trusted(names=frozenset({*seen.names, *accepted}), own_modules=_own_modules(seen.programs))
    if pin is None:
        return Untrusted(folder=folder, config=config, is_old=entry is not None)
    names = frozenset({*pin.names, *pin.accepted})
    strict = is_strict(own)
    if not strict and _is_unchanged(pin, folder, config):
        now = {name: one.now(str(folder.parent)) for name, one in pin.programs.items()}
        new = new_programs(pin, now)
    else:
        from onetool.config.pin import see

        try:
            seen = see(folder, config)
        except ConfigError:  # loading it reports the mistakes
            return Trusted(names=names, programs=pin.programs)
        now = seen.programs
        new = news(pin, seen, folder, strict=strict)
        if not new and pin.files != seen.files:
            _store_stamps(folder, store, {"files": seen.files, "folders": seen.folders})
    if new:
        return Untrusted(folder=folder, config=config, new=tuple(new))
    moved: list[str] = []
    for name, one in now.items():
        before = pin.programs[name].program if name in pin.programs else None
        if before and one.program and (before.path, before.real) != (one.program.path, one.program.real):
            moved.append(f"server {name} now starts {one.program}; it started {before} when the project was trusted")
    return Trusted(names=names, programs=pin.programs, own_modules=_own_modules(pin.programs), moved=tuple(moved))


def news(pin: Pin | None, seen: "Seen", folder: Path, *, strict: bool) -> list[str]:
    """Return what a user has to look at, line by line: `+ servers.docs.url: https://…`, `- …`. Empty: it is trusted."""
    from onetool.config.pin import PACKS, pack_place

    pin = pin or Pin(at="", lines={})
    lines: list[str] = []
    for path in dict.fromkeys((*seen.lines, *pin.lines)):
        before, now = pin.lines.get(path), seen.lines.get(path)
        if before != now:
            lines += [f"- {path}: {before}"] if before is not None else []
            lines += [f"+ {path}: {now}"] if now is not None else []
    known = {*pin.pack_places}
    if pin.own_packs:
        known.add(pack_place(os.path.realpath(folder / PACKS), folder.parent))
    lines += [f"+ Python of packs in {place}" for place in seen.pack_places if place not in known]
    lines += new_programs(pin, seen.programs)
    if strict:
        lines += [f"+ {file}, edited or new" for file, digest in seen.packs.items() if pin.packs.get(file) != digest]
        lines += [] if seen.is_all else ["+ files of packs that can't all be pinned, which `trust: strict` requires"]
    return lines


def new_programs(pin: Pin, now: Mapping[str, ServerProgram]) -> list[str]:
    """Return the programs that have to be confirmed again."""
    before = {name: one.program for name, one in pin.programs.items()}
    reasons = ((name, why_changed(before.get(name), one.program)) for name, one in now.items())
    return [f"+ server {name} {why}" for name, why in reasons if why is not None]


def _own_modules(programs: Mapping[str, ServerProgram]) -> frozenset[str]:
    return frozenset(name for name, one in programs.items() if one.has_module)


def _store_stamps(folder: Path, store: TrustStore, now: Mapping[str, Any]) -> None:
    """Store these file stamps, so that the next start need not parse the files."""
    real = os.path.realpath(folder)

    def change(content: dict[str, Any]) -> None:
        if real in content["folders"]:
            content["folders"][real] |= now

    with suppress(OSError):  # the stamps only save time
        store.change(change)


def trust_folder(
    folder: Path, seen: "Seen", store: TrustStore, *, packs: bool = False, names: tuple[str, ...] = ()
) -> None:
    """Trust a folder with what it says now.

    `packs` trusts later packs, too; `names` are additional secrets that it may use.
    """
    from datetime import UTC, datetime

    accepted = (store.folder(folder) or {}).get("accepted") or ()
    pin = Pin(
        at=datetime.now(UTC).isoformat(timespec="seconds"),
        lines=seen.lines,
        packs=seen.packs,
        pack_places=seen.pack_places,
        folders=seen.folders,
        names=seen.names,
        programs=seen.programs,
        files=seen.files,
        accepted=tuple(sorted({*accepted, *names})),
        own_packs=packs,
    )
    entry = msgspec.to_builtins(pin)
    store.change(lambda content: content["folders"].__setitem__(os.path.realpath(folder), entry))


def has_anything(folder: Path) -> bool:
    """Return whether the folder contains a file that isn't hidden."""
    try:
        return any(not name.startswith(".") for name in os.listdir(folder))
    except OSError:
        return False


@contextmanager
def trust_renewed(file: Path, store: TrustStore, own: Path, names: tuple[str, ...] = ()) -> Iterator[None]:
    """Keep a trusted folder trusted while the block edits its config."""
    folder = file.parent
    if folder.name != own.name or os.path.realpath(folder) == os.path.realpath(own):
        yield
        return
    config = folder / CONFIG_FILE
    was_there = has_anything(folder)
    pin = pin_of(store.folder(folder))
    fine = not was_there or _is_trusted(pin, folder, config if config.is_file() else None, own)
    yield
    if fine and ownership_mistake(folder, own.parent, store.owners) is None:
        with suppress(OSError, ConfigError):  # then the folder waits for `onetool trust`
            from onetool.config.pin import see

            seen = see(folder, config if config.is_file() else None)
            kept = pin.programs if pin else {}  # their changes have not been confirmed
            for name, one in seen.programs.items():
                if name in kept and kept[name].is_written_like(one):
                    seen.programs[name] = kept[name]
            packs = not was_there or (pin is not None and pin.own_packs)
            trust_folder(folder, seen, store, packs=packs, names=names)


def _is_trusted(pin: Pin | None, folder: Path, config: Path | None, own: Path) -> bool:
    """Return whether a folder is trusted. ONETOOL_TRUST does not count, nor does an unreadable folder."""
    if pin is None:
        return False
    from onetool.config.pin import see

    try:
        return not news(pin, see(folder, config), folder, strict=is_strict(own))
    except ConfigError:
        return False


def _is_unchanged(pin: Pin, folder: Path, config: Path | None) -> bool:
    """Return whether the files that the lines were read from, and the folders of packs, are unchanged."""
    if config is None or str(config) not in pin.files or not pin.folders or not is_unchanged(pin.files):
        return False
    if any(line.startswith("topics") for line in pin.lines):
        return False  # a link may have changed its target, which stamps of our own files don't show
    if not any(map(os.path.lexists, pin.folders)):
        return True  # most projects have no packs, and need not load the code that finds them
    from onetool.config.pin import packs_at

    return {*packs_at(map(Path, pin.folders), folder.parent).places} <= {*pin.pack_places}


def is_strict(own: Path) -> bool:
    """Return whether the user's own config says `trust: strict`. It is parsed only if it contains the word."""
    file = own / CONFIG_FILE
    try:
        if STRICT not in file.read_bytes():
            return False
    except OSError:
        return False
    from onetool.config.read import ConfigFileError, read_yaml

    try:
        root = read_yaml(file).data
    except ConfigFileError:
        return True  # it can't be used, and loading it reports that
    mode = root.get("trust") if isinstance(root, dict) else None
    return mode == STRICT.decode()
