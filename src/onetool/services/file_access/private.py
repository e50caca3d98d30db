"""Private: files and folders that no tool may touch: OneTool's own, and where programs keep keys and passwords.

State is known by its marker (`core/state_folders.py`): so exports and the state of other servers are closed, too.
The position of an open file is asked of the system, and each folder above it is compared by device and inode, not by
its name alone: a folder that is mounted twice, or spelled in another case, is the same one. The list of well-known
places is short on purpose: it is a safety net below the allowed folders, not a replacement for them.
"""

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cached_property, lru_cache
from itertools import accumulate
from pathlib import Path

from onetool.core.os_files import HAS_DIR_FD, OpenFolder
from onetool.core.state_folders import MARKER, STATE_FILES, is_marked, is_name_of, is_state_file
from onetool.core.system import path_of_descriptor
from onetool.services.file_access.opening import PathRefusedError, path_errors

OWN_FOLDER_NAME = ".onetool"  # closed wherever such a folder is: secrets, sessions, results, servers, the config

SYSTEM = ("/proc", "/sys", "/dev", "/run/secrets", "/var/run/secrets")

# Below the home folder. Whole folders, where a program keeps little else in them.
# fmt: off
KEPT_AT_HOME = (
    ".ssh", ".gnupg", ".netrc", "_netrc", ".authinfo", ".authinfo.gpg", ".git-credentials", ".config/git/credentials",
    ".aws", ".azure", ".boto", ".kube", ".docker", ".config/containers/auth.json", ".config/gcloud", ".config/doctl",
    ".config/hcloud", ".config/rclone", ".oci", ".fly", ".terraform.d/credentials.tfrc.json", ".vault-token",
    ".npmrc", ".yarnrc.yml", ".pypirc", ".config/pypoetry/auth.toml", ".cargo/credentials", ".cargo/credentials.toml",
    ".gem/credentials", ".m2/settings.xml", ".gradle/gradle.properties",
    ".composer/auth.json", ".config/composer/auth.json",
    ".config/gh", ".config/glab-cli", ".config/hub", ".config/github-copilot", ".config/op", ".op", ".config/sops",
    ".config/age", ".pgpass", ".my.cnf", ".mylogin.cnf",
    ".claude/.credentials.json", ".codex/auth.json", ".gemini/oauth_creds.json",
    ".password-store", ".local/share/keyrings", ".local/share/kwalletd", ".config/keepassxc", ".config/Bitwarden",
    "Library/Keychains", "AppData/Roaming/Microsoft/Credentials", "AppData/Roaming/Microsoft/Protect",
    # Browsers and mail: passwords, and cookies that are as good as passwords.
    ".mozilla", ".thunderbird", "snap/firefox", ".var/app/org.mozilla.firefox",
    ".config/google-chrome", ".config/chromium",
    ".config/BraveSoftware", ".config/microsoft-edge", ".config/vivaldi", ".config/opera", "snap/chromium",
    "Library/Application Support/Google/Chrome", "Library/Application Support/Chromium",
    "Library/Application Support/Firefox", "Library/Application Support/BraveSoftware",
    "Library/Application Support/Microsoft Edge", "Library/Application Support/Arc",
    "Library/Safari", "Library/Cookies",
    "Library/Containers/com.apple.Safari", "Library/Mail",
    "AppData/Local/Google/Chrome", "AppData/Local/Microsoft/Edge", "AppData/Local/BraveSoftware",
    "AppData/Roaming/Mozilla",
)
# fmt: on

# Environment variables that move some of them.
MOVED = (
    "AWS_CONFIG_FILE",
    "AWS_SHARED_CREDENTIALS_FILE",
    "AZURE_CONFIG_DIR",
    "CLOUDSDK_CONFIG",
    "DOCKER_CONFIG",
    "GH_CONFIG_DIR",
    "GNUPGHOME",
    "GOOGLE_APPLICATION_CREDENTIALS",
    "KUBECONFIG",
    "NETRC",
    "NPM_CONFIG_USERCONFIG",
    "PASSWORD_STORE_DIR",
    "PGPASSFILE",
)
BASES = {".config/": "XDG_CONFIG_HOME", ".local/share/": "XDG_DATA_HOME"}


VARIABLES = ("HOME", "USERPROFILE", *MOVED, *BASES.values())


def closed_paths(env: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """Return the closed places as absolute paths; most of them do not exist."""
    return _closed(tuple((name, value) for name in VARIABLES if (value := env.get(name))))


@lru_cache(maxsize=8)
def _closed(variables: tuple[tuple[str, str], ...]) -> tuple[str, ...]:
    """Made once: every call that reads a file asks."""
    env = dict(variables)
    homes = [env[name] for name in ("HOME", "USERPROFILE") if name in env]
    with suppress(ImportError, AttributeError, KeyError):  # not on this system; a container's user without a name
        import pwd

        homes.append(pwd.getpwuid(os.getuid()).pw_dir)  # a variable alone must not open anything
    paths = [*SYSTEM, *(os.path.join(home, kept) for home in homes for kept in KEPT_AT_HOME)]
    for name in MOVED:
        paths += filter(None, env.get(name, "").split(os.pathsep))
    for start, name in BASES.items():
        if base := env.get(name):
            paths += [os.path.join(base, kept[len(start) :]) for kept in KEPT_AT_HOME if kept.startswith(start)]
    return tuple(dict.fromkeys(os.path.normcase(os.path.normpath(path)) for path in paths if os.path.isabs(path)))


# Files that no tool may touch

Number = tuple[int, int]  # of a device, and of a file on it


class Private:
    """`paths` are files, and folders with all that is in them. They need not exist: nobody may make them either.

    `own` is one folder of ours in which others than these may be written: that of the config in force, for topics.
    """

    def __init__(self, paths: Iterable[str], own: str | None = None) -> None:
        self._paths = {_absolute(path): "private" for path in paths}
        self._own = own

    @cached_property
    def _all(self) -> dict[str, str]:
        """Every path, as it is written but absolute, with the reason for which it is refused."""
        return dict.fromkeys(closed_paths(), "closed") | self._paths

    @cached_property
    def _there(self) -> dict[str, os.stat_result]:
        return {path: status for path in self._all if (status := _status(path)) is not None}

    @cached_property
    def _path_texts(self) -> dict[str, str]:
        """All paths as text; of those that exist, which are few, also with links resolved."""
        return self._all | {resolved(path): self._all[path] for path in self._there}

    @cached_property
    def _beginnings(self) -> tuple[str, ...]:
        """For one look at all of them: a path of thousands of names is asked about for each of these."""
        return tuple(f"{place.rstrip(os.sep)}{os.sep}" for place in self._path_texts)

    @cached_property
    def _numbers(self) -> dict[Number, str]:
        return {_number(status): self._all[path] for path, status in self._there.items()}

    @cached_property
    def _devices(self) -> frozenset[int]:
        """File systems of the system's own, which may be mounted anywhere; not where they are part of another one."""
        top = os.stat("/").st_dev
        found = (_status(path) for path in SYSTEM[:3])
        return frozenset(status.st_dev for status in found if status is not None and status.st_dev != top)

    @cached_property
    def _own_number(self) -> Number | None:
        status = _status(self._own) if self._own is not None else None
        return None if status is None else _number(status)

    def refuse(self, status: os.stat_result) -> None:
        """Refuse a file or a folder that is one of them."""
        reason = "closed" if status.st_dev in self._devices else self._numbers.get(_number(status))
        if reason:
            raise PathRefusedError(reason)

    def refuse_entry(self, name: str, status: os.stat_result) -> None:
        """Refuse what is in a folder that was looked at already."""
        self.refuse(status)
        if name.lower() == OWN_FOLDER_NAME and _number(status) != self._own_number:
            raise PathRefusedError("private")

    def refuse_marked(self, folder: OpenFolder) -> None:
        """Refuse an open folder that holds state."""
        try:
            folder.stat(MARKER)
        except FileNotFoundError:
            return
        raise PathRefusedError("state")

    def refuse_text(self, path: str) -> None:
        """Refuse a path by its text, before it is opened, so that callers can't learn what exists there."""
        path = _absolute(path)
        if any(is_marked(place or os.sep) and not self._is_own(place) for place in _and_above(path)):
            raise PathRefusedError("state")
        if is_state_file(path):
            raise PathRefusedError("private")
        if f"{path}{os.sep}".startswith(self._beginnings):
            raise PathRefusedError(next(reason for place, reason in self._path_texts.items() if is_below(path, place)))
        if OWN_FOLDER_NAME in path.lower():
            for place in _and_above(path):
                if os.path.basename(place).lower() == OWN_FOLDER_NAME and not self._is_own(place):
                    raise PathRefusedError("private")

    def refuse_open(self, file: int | OpenFolder, path: str) -> None:
        """Refuse what is open, if it is one of them, or in one of them. `path` is for systems that don't tell."""
        self.refuse(os.fstat(file) if isinstance(file, int) else file.status())
        where = path_of(file) or resolved(path)
        self.refuse_text(where)
        folder, name = os.path.split(where)
        for place in _and_above(folder):
            if (found := _status(place)) is not None and (reason := self._numbers.get(_number(found))):
                raise PathRefusedError(reason)
        if (found := _status(folder)) is not None:
            self._refuse_beside(_number(found), name)

    def refuse_name(self, folder: OpenFolder, name: bytes) -> None:
        """Refuse to write a name in an open folder, whether there is something or not."""
        text = os.fsdecode(name)
        if text.lower() in (OWN_FOLDER_NAME, MARKER) or is_state_file(os.path.join(path_of(folder) or "", text)):
            raise PathRefusedError("private")
        with path_errors(otherwise="not_writable"):
            for status in _ways_up(folder):
                self.refuse(status)
            self._refuse_beside(_number(folder.status()), text)

    def _refuse_beside(self, folder: Number, name: str) -> None:
        """Refuse the name of a private file in its folder, and derived names: SQLite and editors make such files.

        Where upper and lower case are one, a file of the other case would be the private one.
        """
        for path, reason in self._all.items():
            parent, own = os.path.split(path)
            is_file = path in self._paths and ("." in own or own in STATE_FILES)
            is_like = is_name_of(name, (own,)) if is_file else name.lower() == own.lower()
            if is_like and (at := _status(parent)) and _number(at) == folder:
                raise PathRefusedError(reason)

    def _is_own(self, folder: str) -> bool:
        status = None if self._own_number is None else _status(folder)
        return status is not None and _number(status) == self._own_number


def path_of(file: int | OpenFolder) -> str | None:
    """Return where it lies, as the system says; None where it does not."""
    if isinstance(file, OpenFolder):
        if not HAS_DIR_FD:
            return file.path
        file = file.fileno()
    return path_of_descriptor(file)


def is_below(path: str, folder: str) -> bool:
    """Return whether it is that folder, or in it."""
    return path == folder or path.startswith(folder if folder.endswith(os.sep) else folder + os.sep)


def _and_above(path: str) -> Iterator[str]:
    """Return the folders on the way to a path, and itself: /a, /a/b, /a/b/c."""
    drive, path = os.path.splitdrive(path)
    return accumulate(filter(None, path.split(os.sep)), lambda above, name: f"{above}{os.sep}{name}", initial=drive)


def _absolute(path: str) -> str:
    return os.path.normcase(os.path.abspath(path))


def resolved(path: str) -> str:
    try:
        return os.path.normcase(os.path.realpath(path))
    except OSError:
        return _absolute(path)


def _status(path: str) -> os.stat_result | None:
    try:
        return os.stat(path)
    except (OSError, ValueError):
        return None


def _number(status: os.stat_result) -> Number:
    return status.st_dev, status.st_ino


def _ways_up(folder: OpenFolder) -> Iterable[os.stat_result]:
    """Yield a folder, the one it is in, and so on to the top: as they really lie, not as a path with links says."""
    if not HAS_DIR_FD:  # its path has no links
        yield from map(os.stat, (folder.path, *Path(folder.path).parents))
        return
    path, below = ".", None
    while True:
        status = os.stat(path, dir_fd=folder.fileno())
        if below is not None and os.path.samestat(status, below):
            return
        yield status
        path, below = f"{path}/..", status
