"""Checks the files of a config before they are used: who owns them, and who can write to them.

A config and a pack are code: anyone who can write to one can do everything that this process can. A file is used only
if it belongs to the user or to root and nobody else can write to it. A group with the user as its only member counts as
the user, because many systems create such groups. `onetool trust --owner PATH` accepts a path unchanged, like git's
safe.directory: bind mounts, WSL and mapped users need that.
"""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from onetool.core.errors import ConfigError, Mistake
from onetool.core.file_facts import ROOT, is_foreign_owner, is_writable_by_others
from onetool.core.state_folders import STATE_FILE, STATE_FILES, STATE_FOLDERS

CONFIG_FILE = "onetool.yaml"
SECRETS_FILE = "secrets.yaml"  # beside the config, unless the config names another file

STATE = (*STATE_FOLDERS, "bundles", "state.db", "stats.db")  # files and folders that we create, and so never links
Accepted = Mapping[str, Mapping[str, Any]]  # real paths -> owner and mode when they were accepted


def require_ownership(paths: Iterable[Path], home: Path, accepted: Accepted) -> None:
    """Raise ConfigError for every existing path that other users own or can write to."""
    mistakes = [mistake for path in paths if (mistake := ownership_mistake(path, home, accepted))]
    if mistakes:
        raise ConfigError(mistakes)


def require_no_links(state: Path, is_ours_alone: bool) -> None:
    """Raise ConfigError for links in the state folder, through which OneTool would write elsewhere.

    With `is_ours_alone`, links inside its folders are refused, too. A shared folder may contain other files of the user
    with these names.
    """
    links = [state / part for part in STATE if os.path.islink(state / part)]
    if is_ours_alone and not links:
        links = [path for part in STATE_FOLDERS for path in _links_in(state / part)]
        links += [path for path in _links_in(state) if path.name.startswith(STATE_FILES)]
    if links:
        hint = "remove the link; ONETOOL_HOME moves all state elsewhere"
        raise ConfigError(
            [Mistake(message="a symbolic link; refusing to use it", file=str(it), hint=hint) for it in links]
        )


def _links_in(folder: Path) -> list[Path]:
    try:
        with os.scandir(folder) as entries:
            return [Path(entry.path) for entry in entries if entry.is_symlink()]
    except OSError:  # missing, or not a folder
        return []


def ownership_mistake(path: Path, home: Path, accepted: Accepted) -> Mistake | None:
    """Return the mistake in a path's owner or mode, with the command that fixes it; None if the path is fine."""
    try:
        status = os.stat(path)
    except OSError:
        return None  # reading it reports the error
    strange, writable = is_foreign_owner(status), is_writable_by_others(status)
    if not (strange or writable) or _is_accepted(path, status, writable, accepted):
        return None
    from shlex import quote

    quoted = quote(str(path))
    is_database = path.name == STATE_FILE  # always refused, even if accepted
    fixes = [] if is_database else [f"onetool trust --owner {quoted}"]
    if strange:
        message = f"ignored, because it belongs to another user (user {status.st_uid})"
        if is_database or Path(os.path.realpath(path)).is_relative_to(os.path.realpath(home)):
            fixes.insert(0, f"chown {os.geteuid()} {quoted}")
    else:
        message = "ignored, because other users can write to it"
        fixes.insert(0, f"chmod go-w {quoted}")
    return Mistake(message=message, file=str(path), hint=f"run: {'; or: '.join(fixes)}")


def owner_and_mode(path: Path) -> dict[str, Any]:
    """Return the facts that the user can accept for a path: its owner, and whether others can write to it.

    Raises OSError.
    """
    status = os.stat(path)
    return {"uid": status.st_uid, "writable": is_writable_by_others(status)}


def is_accepted_place(place: Path, accepted: Accepted) -> bool:
    """Return whether the user has accepted this path or a parent of it."""
    return bool(accepted) and any(one in accepted for one in _upwards(place))


def is_inside(path: Path, project: Path) -> bool:
    """Return whether a path is really inside a project: a link may lead elsewhere, and so may a secret in the path."""
    return "${" not in str(path) and Path(os.path.realpath(path)).is_relative_to(os.path.realpath(project))


def _is_accepted(path: Path, status: os.stat_result, writable: bool, accepted: Accepted) -> bool:
    """Return whether this path or a parent was accepted with this owner, and with a mode as open as this one."""
    for place in _upwards(path) if accepted else ():
        how = accepted.get(place)
        if how is not None and status.st_uid in (how.get("uid"), os.geteuid(), ROOT):
            return bool(how.get("writable")) or not writable
    return False


def _upwards(path: Path) -> list[str]:
    real = Path(os.path.realpath(path))
    return [str(real), *map(str, real.parents)]
