"""Decides whether a project's folder may be used, and stores which folders the user trusts.

A folder is not trusted because the current directory is in it. The user trusts it once with `onetool trust`; its reach
at that moment is stored, and anything new has to be confirmed again. The code of its packs may change, unless the
user's own config says `trust: strict`.

`~/.onetool/trust.json` is never in a project, is ignored if others can write to it, and is replaced atomically under a
lock:

    {"version": 1,
     "folders": {"/real/path/.onetool": {"at": …, "reaches": {…}, "packs": {…}, "files": {…}, "programs": {…},
                                            "accepted": […]}},
     "owners": {"/real/path": {"at": …, "uid": 1000, "writable": false}}}
"""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from onetool.config.file_checks import CONFIG_FILE as NAME
from onetool.config.file_checks import ownership_mistake
from onetool.core.errors import ConfigError, Mistake
from onetool.core.file_facts import is_unchanged
from onetool.core.os_files import replace_file
from onetool.sources.mcp_servers.program import ServerProgram, why_changed

if TYPE_CHECKING:
    from onetool.config.reach import Reach

TRUST_FILE = "trust.json"
FILE_VERSION = 1
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
    found = found if isinstance(found, dict) and found.get("version") == FILE_VERSION else {}
    content: dict[str, TrustEntries] = {}
    for part in ("folders", "owners"):
        entries = found.get(part)
        entries = entries if isinstance(entries, dict) else {}
        content[part] = {key: one for key, one in entries.items() if isinstance(one, dict)}
    return content


# The decision about a folder

TRUST_VARIABLE = "ONETOOL_TRUST"
STRICT = b"strict"
# By the first word of a line of `trust.json`, whose wording can't change
VERBS = {"runs": "runs", "dials": "connects to", "reads": "reads or writes", "secrets": "names the secret"}
CONNECTS = ("server ", "host ", "model at ")  # how the lines of `dials` about connections begin
MAX_SHOWN = 3


class Untrusted(msgspec.Struct, frozen=True, kw_only=True):
    """A folder that was found but is not used, and the reason."""

    folder: Path
    config: Path | None = None
    new: tuple[str, ...] = ()  # what it reaches now, but did not when it was trusted
    mistake: Mistake | None = None  # about its owner or mode: it can't be trusted
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
        """The state in words: not trusted yet, or what is new since it was trusted."""
        if not self.new:
            return self._verdict
        from onetool.config.reach import readable

        lines = [line.partition(": ") for line in self.new[:MAX_SHOWN]]
        shown: list[str] = []
        for key, sign, rest in lines:
            if key == "dials" and not rest.startswith(CONNECTS):
                shown.append(readable(rest))
            else:
                shown.append(f"{VERBS[key]}: {readable(rest)}" if key in VERBS else f"{key}{sign}{rest}")
        more = f" and {len(self.new) - MAX_SHOWN} more" if len(self.new) > MAX_SHOWN else ""
        return f"{self._verdict} ({'; '.join(shown)}{more})"

    @property
    def command(self) -> str:
        """The command that fixes it."""
        return "onetool trust" if self.mistake is None else "onetool check"

    @property
    def _commands(self) -> str:
        return f"{self.command}, then {self.then}" if self.then else self.command

    @property
    def _verdict(self) -> str:
        return "has changed since you trusted it" if self.new else "is not trusted yet"


class Trusted(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of a project that are trusted, and how its servers start."""

    names: frozenset[str] = frozenset()  # of secrets that it may read from the environment
    programs: "dict[str, ServerProgram] | None" = None  # as they were when trusted; None: as they are now
    own_modules: frozenset[str] = frozenset()  # servers whose `python -m NAME` finds NAME in their folder
    moved: tuple[str, ...] = ()  # commands that now find another program, outside the project


def trusted_parts(
    folder: Path, config: Path | None, store: TrustStore, env: Mapping[str, str], own: Path
) -> Trusted | Untrusted:
    """Return the parts of a project that may be used, or the reason why none of them is."""
    pin = store.folder(folder)
    if env.get(TRUST_VARIABLE) == "1":
        from onetool.config.reach import reach_of

        try:
            reach = reach_of(folder, config)
        except ConfigError:  # loading it reports the mistakes
            return Trusted()
        names = frozenset({*reach.names(), *_names_of(pin or {})})
        return Trusted(names=names, own_modules=_own_modules(reach.programs))
    if pin is None:
        return Untrusted(folder=folder, config=config)
    strict, names, programs = _is_strict(own), _names_of(pin), programs_of(pin)
    known = programs or {}
    if not strict and programs is not None and _is_unchanged(pin, folder, config):
        now = {name: one.now(str(folder.parent)) for name, one in known.items()}
        new = new_programs(known, now)
    else:
        from onetool.config.reach import reach_of

        try:
            reach = reach_of(folder, config)
        except ConfigError:  # loading it reports the mistakes
            return Trusted(names=names, programs=known)
        now = reach.programs
        new = [*new_reach(pin, reach, strict), *new_programs(programs, now)]
        if not new and (programs is None or pin.get("files") != reach.files):
            kept = pin.get("programs") or {}
            _store_stamps(folder, store, {"files": reach.files, "places": reach.places, "programs": kept})
    if new:
        return Untrusted(folder=folder, config=config, new=tuple(new))
    moved: list[str] = []
    for name, one in now.items():
        before = known[name].program if name in known else None
        if before and one.program and (before.path, before.real) != (one.program.path, one.program.real):
            moved.append(f"server {name} now starts {one.program}; it started {before} when the project was trusted")
    return Trusted(names=names, programs=known, own_modules=_own_modules(known), moved=tuple(moved))


def new_programs(trusted: "Mapping[str, ServerProgram] | None", now: "Mapping[str, ServerProgram]") -> list[str]:
    """Return the programs that have to be confirmed again. `trusted` is None in entries of older versions."""
    if not now:
        return []
    if trusted is None:
        return ["runs: the programs of its servers, which were not shown at the time"]
    before = {name: one.program for name, one in trusted.items()}
    reasons = ((name, why_changed(before.get(name), one.program)) for name, one in now.items())
    return [f"runs: server {name} {why}" for name, why in reasons if why is not None]


def _own_modules(programs: "Mapping[str, ServerProgram]") -> frozenset[str]:
    return frozenset(name for name, one in programs.items() if one.has_module)


def programs_of(pin: Mapping[str, Any]) -> "dict[str, ServerProgram] | None":
    """Return the programs of an entry; None for an entry of an older version."""
    with suppress(msgspec.ValidationError):
        return msgspec.convert(pin.get("programs"), dict[str, ServerProgram] | None)
    return None


def _store_stamps(folder: Path, store: TrustStore, now: Mapping[str, Any]) -> None:
    """Store these file stamps, so that the next start need not parse the files."""
    real = os.path.realpath(folder)

    def change(content: dict[str, Any]) -> None:
        if real in content["folders"]:
            content["folders"][real] |= now

    with suppress(OSError):  # the stamps only save time
        store.change(change)


def new_reach(pin: Mapping[str, Any], reach: "Reach", strict: bool) -> list[str]:
    """Return the lines of the reach that were added since the folder was trusted, and the protections that it has lost.

    The lines are shown to users. The lines in `trust.json` are compared, so their wording can't change.
    """
    from onetool.config.reach import ACCESS_LINE, AUDIT, NOT_NOTED

    before = pin.get("reaches") or {}
    pinned = reach.pinned()
    token_line = f"dials: {ACCESS_LINE}"
    other = "http.token has changed: callers will need the new one"
    shown = {token_line: other if token_line in before else "http.token is new: callers will need it"}
    new = [shown.get(line, line) for line, digest in pinned.items() if before.get(line) != digest]
    if token_line in before and token_line not in pinned:
        new.append("http.token was removed: anyone who reaches the server can call")
    for key in ("http.tokens", "http.jwt", "http.url", "http.local"):
        line = f"dials: {key}:"
        if any(one.startswith(line) for one in before) and not any(one.startswith(line) for one in pinned):
            new.append(f"{key} was removed, which changes the accepted callers")
    noted = [one for one in before if one.startswith(f"dials: {AUDIT}") and not one.endswith(NOT_NOTED)]
    if noted and not any(one.startswith(f"dials: {AUDIT}") for one in pinned):
        new.append(f"{noted[0].removeprefix('dials: ')} was removed: calls are recorded as usual")
    if strict:
        packs = pin.get("packs") or {}
        new += [f"runs: {file}, edited or new" for file, digest in reach.packs.items() if packs.get(file) != digest]
        new += [] if reach.is_all else ["runs: files of packs that can't all be pinned, which `trust: strict` requires"]
    return new


def trust_folder(
    folder: Path, reach: "Reach", store: TrustStore, *, packs: bool = False, names: tuple[str, ...] = ()
) -> None:
    """Trust a folder with its current reach.

    `packs` trusts later packs, too; `names` are additional secrets that it may use.
    """
    from datetime import UTC, datetime

    from onetool.config.reach import own_line

    pinned = reach.pinned()
    if packs:
        pinned.setdefault(f"runs: {own_line(folder)}", "")
    before = store.folder(folder) or {}
    entry = {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "reaches": pinned,
        "wants": list(reach.wants),
        "accepted": sorted({*(before.get("accepted") or ()), *names}),
        "packs": reach.packs,
        "places": reach.places,
        "files": reach.files,
        "programs": msgspec.to_builtins(reach.programs),
    }
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
    config = folder / NAME
    was_there = has_anything(folder)
    fine = not was_there or _is_trusted(folder, config if config.is_file() else None, store, own)
    before = (store.folder(folder) or {}).get("reaches") or {}
    yield
    if fine and ownership_mistake(folder, own.parent, store.owners) is None:
        with suppress(OSError, ConfigError):  # then the folder waits for `onetool trust`
            from onetool.config.reach import own_line, reach_of

            packs = not was_there or f"runs: {own_line(folder)}" in before
            reach = reach_of(folder, config if config.is_file() else None)
            kept = programs_of(store.folder(folder) or {}) or {}  # their changes have not been confirmed
            for name, one in reach.programs.items():
                if name in kept and kept[name].is_written_like(one):
                    reach.programs[name] = kept[name]
            trust_folder(folder, reach, store, packs=packs, names=names)


def _is_trusted(folder: Path, config: Path | None, store: TrustStore, own: Path) -> bool:
    """Return whether the store trusts a folder. ONETOOL_TRUST does not count, nor does an unreadable folder."""
    pin = store.folder(folder)
    if pin is None:
        return False
    from onetool.config.reach import reach_of

    try:
        reach = reach_of(folder, config)
        return not new_reach(pin, reach, _is_strict(own)) and not new_programs(programs_of(pin), reach.programs)
    except ConfigError:
        return False


def _is_unchanged(pin: Mapping[str, Any], folder: Path, config: Path | None) -> bool:
    """Return whether the files that the reach was read from, and the folders of packs, are unchanged."""
    files, places, reaches = (pin.get(key) or {} for key in ("files", "places", "reaches"))
    if config is None or str(config) not in files or not places or not is_unchanged(files):
        return False
    if any(line.startswith("reads: topic") for line in reaches):
        return False  # a link may have changed its target, which stamps of our own files don't show
    if not any(map(os.path.lexists, places)):
        return True  # most projects have no packs, and need not load the code that finds them
    from onetool.config.reach import packs_at

    return all(f"runs: {line}" in reaches for line in packs_at(map(Path, places), folder.parent).lines)


def _names_of(pin: Mapping[str, Any]) -> frozenset[str]:
    lines = (line.removeprefix("secrets: ") for line in pin.get("reaches") or () if line.startswith("secrets: "))
    return frozenset({*(line.partition(" ")[0] for line in lines), *pin.get("wants", ()), *pin.get("accepted", ())})


def _is_strict(own: Path) -> bool:
    """Return whether the user's own config says `trust: strict`. It is parsed only if it contains the word."""
    file = own / NAME
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
