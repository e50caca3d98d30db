"""Private: files and folders that no tool may access: those of OneTool, and those with keys and passwords.

State folders are recognised by their marker (`core/state_folders.py`), so exports and the state of other servers are
private, too. The system gives the path of an open file, and each parent folder is compared by device and inode, not
just by name: a folder may be mounted twice, or spelled in another case. The list of well-known places is short on
purpose: it is a safety net in addition to the allowed folders, not a replacement for them.
"""

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import cached_property, lru_cache
from itertools import accumulate

from onetool.core.os_files import OpenFolder
from onetool.core.state_folders import MARKER, STATE_FILES, is_marked, is_name_of, is_state_file
from onetool.core.system import path_of_descriptor
from onetool.services.file_access.opening import PathRefusedError, path_errors

OWN_FOLDER_NAME = ".onetool"  # closed everywhere: it holds secrets, sessions, results, servers, the config
SYSTEM = ("/proc", "/sys", "/dev", "/run/secrets", "/var/run/secrets")

# Below the home folder. A whole folder if the program keeps little else in it.
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
    "Library/Keychains",
    # Browsers and mail: passwords, and cookies that work like passwords.
    ".mozilla", ".thunderbird", "snap/firefox", ".var/app/org.mozilla.firefox",
    ".config/google-chrome", ".config/chromium",
    ".config/BraveSoftware", ".config/microsoft-edge", ".config/vivaldi", ".config/opera", "snap/chromium",
    "Library/Application Support/Google/Chrome", "Library/Application Support/Chromium",
    "Library/Application Support/Firefox", "Library/Application Support/BraveSoftware",
    "Library/Application Support/Microsoft Edge", "Library/Application Support/Arc",
    "Library/Safari", "Library/Cookies",
    "Library/Containers/com.apple.Safari", "Library/Mail",
)
# fmt: on

# Environment variables that change some of these paths.
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

VARIABLES = ("HOME", *MOVED, *BASES.values())


def closed_paths() -> tuple[str, ...]:
    """Return the private places as absolute paths, most of which do not exist."""
    return _closed(tuple((name, value) for name in VARIABLES if (value := os.environ.get(name))))


@lru_cache(maxsize=8)
def _closed(variables: tuple[tuple[str, str], ...]) -> tuple[str, ...]:
    """Return the private places for these variables.

    The result is cached, because every call that reads a file needs it.
    """
    env = dict(variables)
    homes = [env["HOME"]] if "HOME" in env else []
    with suppress(ImportError, AttributeError, KeyError):  # no such module; a container's user without a name
        import pwd

        homes.append(pwd.getpwuid(os.getuid()).pw_dir)  # changing HOME must not open the real home folder
    paths = [*SYSTEM, *(os.path.join(home, place) for home in homes for place in KEPT_AT_HOME)]
    for name in MOVED:
        paths += filter(None, env.get(name, "").split(os.pathsep))
    for start, name in BASES.items():
        if base := env.get(name):
            paths += [os.path.join(base, place[len(start) :]) for place in KEPT_AT_HOME if place.startswith(start)]
    return tuple(dict.fromkeys(os.path.normcase(os.path.normpath(path)) for path in paths if os.path.isabs(path)))


# Files that no tool may access

Number = tuple[int, int]  # device and inode


class Private:
    """A set of private paths: files, and folders with everything in them. Missing paths can't be created either.

    `own` is the one folder of OneTool that tools may write to: that of the active config, for topics.
    """

    def __init__(self, paths: Iterable[str], own: str | None = None) -> None:
        self._paths = {_absolute(path): "private" for path in paths}
        self._own = own

    @cached_property
    def _all(self) -> dict[str, str]:
        """Every path, absolute with links unresolved, and the reason for refusing it."""
        return dict.fromkeys(closed_paths(), "closed") | self._paths

    @cached_property
    def _there(self) -> dict[str, os.stat_result]:
        return {path: status for path in self._all if (status := _status(path)) is not None}

    @cached_property
    def _path_texts(self) -> dict[str, str]:
        """All paths as text. The few that exist are also included with links resolved."""
        return self._all | {resolved(path): self._all[path] for path in self._there}

    @cached_property
    def _beginnings(self) -> tuple[str, ...]:
        """The paths as prefixes for one `startswith`: a path of thousands of names is tested at each name."""
        return tuple(f"{place.rstrip(os.sep)}{os.sep}" for place in self._path_texts)

    @cached_property
    def _numbers(self) -> dict[Number, str]:
        return {_number(status): self._all[path] for path, status in self._there.items()}

    @cached_property
    def _devices(self) -> frozenset[int]:
        """The devices of the system's own file systems, which may be mounted anywhere."""
        top = os.stat("/").st_dev
        found = (_status(path) for path in SYSTEM[:3])
        return frozenset(status.st_dev for status in found if status is not None and status.st_dev != top)

    @cached_property
    def _own_number(self) -> Number | None:
        status = _status(self._own) if self._own is not None else None
        return None if status is None else _number(status)

    def refuse(self, status: os.stat_result) -> None:
        """Refuse a private file or folder."""
        reason = "closed" if status.st_dev in self._devices else self._numbers.get(_number(status))
        if reason:
            raise PathRefusedError(reason)

    def refuse_entry(self, name: str, status: os.stat_result) -> None:
        """Refuse a private entry of a folder that was checked already."""
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
        """Refuse an open file or folder that is private, or below a private folder. `path` is for systems that can't
        report the path of an open file.
        """
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
        """Refuse to write a private name in an open folder, whether or not it exists."""
        text = os.fsdecode(name)
        if text.lower() in (OWN_FOLDER_NAME, MARKER) or is_state_file(os.path.join(path_of(folder) or "", text)):
            raise PathRefusedError("private")
        with path_errors(otherwise="not_writable"):
            for status in _ways_up(folder):
                self.refuse(status)
            self._refuse_beside(_number(folder.status()), text)

    def _refuse_beside(self, folder: Number, name: str) -> None:
        """Refuse the name of a private file in its folder, and derived names: SQLite and editors create such files.

        Case is ignored, since some file systems ignore it.
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
    """Return the path of an open file as the system reports it; None if it does not."""
    return path_of_descriptor(file if isinstance(file, int) else file.fileno())


def is_below(path: str, folder: str) -> bool:
    """Return whether `path` is `folder` or inside it."""
    return path == folder or path.startswith(folder if folder.endswith(os.sep) else folder + os.sep)


def _and_above(path: str) -> Iterator[str]:
    """Return the parent folders of a path, and the path: /a, /a/b, /a/b/c."""
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
    """Yield a folder and all its real parents, which may differ from those in a path with links."""
    path, below = ".", None
    while True:
        status = os.stat(path, dir_fd=folder.fileno())
        if below is not None and os.path.samestat(status, below):
            return
        yield status
        path, below = f"{path}/..", status
