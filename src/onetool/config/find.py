"""Which config file is in force, and where state lives."""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from onetool.core.errors import ConfigError, Mistake

FOLDER = ".onetool"
NAME = "onetool.yaml"


def find_config(
    explicit: str | Path | None,
    *,
    env: Mapping[str, str] = os.environ,
    cwd: Path | None = None,
    home: Path | None = None,
) -> Path | None:
    """The file that somebody named, else the nearest of this folder and its parents, else the user's own, else none."""
    home = home or user_home(env)
    cwd = cwd or Path.cwd()
    if explicit is not None:
        return _named(explicit, "--config", cwd, home)
    if env.get("ONETOOL_CONFIG"):
        return _named(env["ONETOOL_CONFIG"], "ONETOOL_CONFIG", cwd, home)
    return _first_file(folder / FOLDER / NAME for folder in (cwd, *cwd.parents, home))


def nearest_folder(env: Mapping[str, str] = os.environ) -> Path:
    """The `.onetool` of this folder or a parent, else the user's own; it need not exist."""
    home, cwd = user_home(env), Path.cwd()
    candidates = (folder / FOLDER for folder in (cwd, *cwd.parents))
    return next((folder for folder in candidates if folder.is_dir()), home / FOLDER)


def state_home(config: Path | None, env: Mapping[str, str]) -> Path:
    """The folder for stats, results and bundles: ONETOOL_HOME, else beside the config, else the user's own."""
    if env.get("ONETOOL_HOME"):
        return Path.cwd() / _expanded(env["ONETOOL_HOME"], user_home(env))
    return config.parent if config else user_home(env) / FOLDER


def user_home(env: Mapping[str, str]) -> Path:
    named = env.get("HOME") or env.get("USERPROFILE")
    if named:
        return Path(named)
    try:
        return Path.home()
    except RuntimeError:  # a container's user without a name or a home
        return Path.cwd()


def _named(named: str | Path, by: str, cwd: Path, home: Path) -> Path:
    path = cwd / _expanded(named, home)
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        message = (
            "there is no such config file" if by == "--config" else f"{by} names a config file that does not exist"
        )
        raise ConfigError([Mistake(message=message, file=str(path), hint="run `onetool init` to make one")]) from None
    except OSError:
        pass  # it is there; the loader will say why it can't be read
    return path


def _expanded(named: str | Path, home: Path) -> Path:
    path = Path(named)
    return home.joinpath(*path.parts[1:]) if path.parts[:1] == ("~",) else path


def _first_file(candidates: Iterable[Path]) -> Path | None:
    return next((path for path in candidates if os.path.isfile(path)), None)
