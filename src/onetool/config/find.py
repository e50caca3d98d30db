"""Finds the config file that applies, its owner, and the state folder."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal

import msgspec

from onetool.config.file_checks import CONFIG_FILE, is_accepted_place, ownership_mistake, require_ownership
from onetool.config.trust import Trusted, TrustStore, Untrusted, trusted_parts
from onetool.core.errors import ConfigError, Mistake
from onetool.core.file_facts import everybody_can_write

FOLDER = ".onetool"
MOUNTS = "/proc/self/mountinfo"
NOWHERE = Path(os.devnull)  # a folder that can't contain anything

Whose = Literal["named", "own", "project"]


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """The config that applies here, and its owner.

    A config that is `named` (--config, ONETOOL_CONFIG, `App.open(config=…)`) or the user's `own` (in ~/.onetool) is
    used without asking. The config of a `project` was found and is trusted; an `untrusted` one is ignored, and the
    user's own config is used.
    """

    config: Path | None
    folder: Path  # the folder of packs: beside the config, or where that would be
    whose: Whose
    project_packs: Path | None = None  # packs of a trusted project without a config
    trusted: Trusted | None = None  # what a project may use; None if not a project's
    untrusted: Untrusted | None = None


def find(
    explicit: str | Path | None = None,
    *,
    env: Mapping[str, str] = os.environ,
    cwd: Path | None = None,
    home: Path | None = None,
) -> Found:
    """Find the named config, else the nearest from this folder upwards, else the user's own, else none."""
    home = home or _own_home(env)
    cwd = cwd or Path.cwd()
    store = TrustStore(home / FOLDER)
    named, by = (explicit, "--config") if explicit is not None else (env.get("ONETOOL_CONFIG"), "ONETOOL_CONFIG")
    if explicit is not None or named:
        path = _named(named or "", by, cwd, home)
        require_ownership([path], home, store.owners)
        return Found(config=path, folder=path.parent, whose="named")
    folder = _project_folder(cwd, home, store)
    if folder is None:
        return _own(home, store)
    config = folder / CONFIG_FILE if os.path.isfile(folder / CONFIG_FILE) else None
    trusted = _ownership_problem(folder, config, home, store) or trusted_parts(
        folder, config, store, env, home / FOLDER
    )
    if isinstance(trusted, Untrusted):
        return msgspec.structs.replace(_own(home, store), untrusted=trusted)
    own = None if config else _own(home, store)
    if own and own.config:  # packs of a project without a config are used together with the user's own config
        return msgspec.structs.replace(own, project_packs=folder / "packs")
    return Found(config=config, folder=folder, whose="project", trusted=trusted)


def nearest_folder() -> Path:
    """Return the `.onetool` folder that applies here if no config is named; it may not exist."""
    return find(env={**os.environ, "ONETOOL_CONFIG": ""}).folder


def state_home(config: Path | None, env: Mapping[str, str]) -> Path:
    """Return the state folder: ONETOOL_HOME, else beside the config, else the user's own. Raises ConfigError."""
    if env.get("ONETOOL_HOME"):
        home = Path.cwd() / _expand_home(env["ONETOOL_HOME"], user_home(env))
        for place in (home, *home.parents):  # the folder may be created later, but not below a file
            if place.is_dir():
                break
            if place.exists():
                raise ConfigError([Mistake(message=f"ONETOOL_HOME is a file: {place}; set it to a folder")])
        return home
    return config.parent if config else user_home(env) / FOLDER


def place_of(config: Path) -> Path:
    """Return the folder that a config is for: the parent of its `.onetool`, else the config's own folder."""
    return config.parent.parent if config.parent.name == FOLDER else config.parent


def user_home(env: Mapping[str, str]) -> Path:
    """Return the home folder, or the working directory for a container's user without a home. Used for state only."""
    return _home(env) or Path.cwd()


def user_config() -> Path:
    """Return the path of the user's own config, which may not exist."""
    return own_folder() / CONFIG_FILE


def own_folder(env: Mapping[str, str] = os.environ) -> Path:
    """Return the folder of the user's own config and trust."""
    return _own_home(env) / FOLDER


def _own_home(env: Mapping[str, str]) -> Path:
    """Return the home of the user's own config; NOWHERE without one, as anyone may own the working directory."""
    return _home(env) or NOWHERE


def _home(env: Mapping[str, str]) -> Path | None:
    if named := env.get("HOME") or env.get("USERPROFILE"):
        return Path(named)
    try:
        return Path.home()
    except RuntimeError:
        return None


def trust_store(env: Mapping[str, str] = os.environ) -> TrustStore:
    return TrustStore(own_folder(env))


def project_here() -> Path | None:
    """Return the `.onetool` of the current project, trusted or not."""
    home = _own_home(os.environ)
    return _project_folder(Path.cwd(), home, TrustStore(home / FOLDER))


def project_files() -> list[Path]:
    """Return the configs and pack folders that would make a folder from here upwards a project. They may not exist."""
    home = _own_home(os.environ)
    try:
        folders = list(_project_folders(Path.cwd(), home, TrustStore(home / FOLDER)))
    except OSError:  # the current folder was deleted
        return []
    return [folder / name for folder in folders for name in (CONFIG_FILE, "packs")]


def _project_folder(cwd: Path, home: Path, store: TrustStore) -> Path | None:
    """Return the nearest `.onetool` with a config, else the nearest with packs."""
    seen = list(_project_folders(cwd, home, store))
    found = next((folder for folder in seen if os.path.isfile(folder / CONFIG_FILE)), None)
    found = found or next((folder for folder in seen if os.path.isdir(folder / "packs")), None)
    return None if found is None or _is_above_a_mount(found.parent, cwd) else found


def _is_above_a_mount(place: Path, cwd: Path) -> bool:
    """Return whether there is a mount between two folders. A bind mount, with the same device, is only in MOUNTS."""
    above, here = os.path.realpath(place), Path(os.path.realpath(cwd))
    between = [str(folder) for folder in (here, *here.parents) if len(str(folder)) > len(above)]
    if not between:
        return False
    try:
        with open(MOUNTS, "rb") as stream:
            points = {line.split(b" ")[4] for line in stream if line.count(b" ") > 4}  # see proc(5)
    except OSError:  # not on this system: devices are compared instead
        return False
    # A space is written as the octal escape \040.
    points = {name.decode("unicode_escape").encode("latin-1") if b"\\" in name else name for name in points}
    return any(os.fsencode(folder) in points for folder in between)


def _project_folders(cwd: Path, home: Path, store: TrustStore) -> Iterator[Path]:
    """Yield every `.onetool` from here upwards that may be a project's.

    The search stops at the user's home, which has its own, at a mount, and at a world-writable folder, in which anyone
    could have created one.
    """
    try:
        end = os.stat(home)
    except OSError:
        end = None
    last = None
    for folder in (cwd, *cwd.parents):
        try:
            here = os.stat(folder)
        except OSError:
            return
        if (last and here.st_dev != last.st_dev) or (end and os.path.samestat(here, end)):
            return
        yield folder / FOLDER
        if everybody_can_write(here) and not is_accepted_place(folder, store.owners):
            return
        last = here


def _ownership_problem(folder: Path, config: Path | None, home: Path, store: TrustStore) -> Untrusted | None:
    """Return the reason to ignore a folder because of its owner or its parent's mode."""
    wrong = next(
        (wrong for path in (folder, config) if path and (wrong := ownership_mistake(path, home, store.owners))), None
    )
    if wrong is None and everybody_can_write(os.stat(folder.parent)) and not is_accepted_place(folder, store.owners):
        message = "ignored, because everybody can write to its parent folder"
        hint = f"move it, or run: onetool trust --owner {folder}"
        wrong = Mistake(message=message, file=str(folder), hint=hint)
    return wrong and Untrusted(folder=folder, config=config, mistake=wrong)


def _own(home: Path, store: TrustStore) -> Found:
    folder = home / FOLDER
    return Found(config=owned_config(folder, home, store), folder=folder, whose="own")


def owned_config(folder: Path, home: Path, store: TrustStore) -> Path | None:
    """Return the config in a folder; None if it has none. Raises ConfigError if other users can change them."""
    config = folder / CONFIG_FILE if os.path.isfile(folder / CONFIG_FILE) else None
    require_ownership([folder, *([config] if config else [])], home, store.owners)
    return config


def _named(named: str | Path, by: str, cwd: Path, home: Path) -> Path:
    path = cwd / _expand_home(named, home)
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        message = (
            "this config file does not exist" if by == "--config" else f"{by} names a config file that does not exist"
        )
        raise ConfigError([Mistake(message=message, file=str(path), hint="run `onetool init` to create one")]) from None
    except OSError:
        pass  # it exists; the loader reports why it can't be read
    return path


def _expand_home(named: str | Path, home: Path) -> Path:
    path = Path(named)
    return home.joinpath(*path.parts[1:]) if path.parts[:1] == ("~",) else path
