"""Lists the files and folders that a config is read from, and the folders that its `fs.roots` may be in."""

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from onetool.config import Config, load_roots, nearest_folder
from onetool.config.file_checks import require_ownership
from onetool.config.find import FOLDER, NAME, place_of, trust_store, user_home
from onetool.config.model import PROMPTS_FILE as PROMPTS
from onetool.sources.packs.importing import parts_of


def pack_paths(config: Config) -> list[Path]:
    """The packs that the config names, and the folder `packs` beside it, or in the nearest `.onetool`."""
    beside = _config_folder(config) / "packs"
    paths = [*config.packs, *([beside] if beside.is_dir() and beside not in config.packs else [])]
    owned = (part for path in paths for part in (path, *_importable(path)))
    require_ownership(owned, user_home(os.environ), trust_store().owners)
    return paths


def _importable(path: Path) -> Iterator[Path]:
    """What may be imported: every file and folder of it has an owner of its own."""
    with suppress(OSError):  # it is not there, or can't be read: the loader says so
        yield from (part.path for part in parts_of(path) if part.place)


def watched_files(config: Config, failed: Iterable[Path], finds: bool) -> list[Path]:
    """Files to watch for changes. `failed`: files with the mistakes of a failed reload; `finds`: also watch for a
    config to appear.
    """
    beside = _config_folder(config)
    place = beside / "onetool.yaml" if config.path is None and finds else config.path
    named = (place, *config.include, config.prompts or beside / PROMPTS, config.secrets.file)
    files = [*(file for file in named if file), *config.packs, beside / "packs", *failed]
    return list(dict.fromkeys(files))


def roots_within(config: Config) -> list[str] | None:
    """Where the roots of a config may lie: those of a project below it, or where the person's own config has some.

    None is anywhere: for the person's own config, and for one that was named by hand.
    """
    if config.whose != "project" or config.path is None:
        return None
    own = user_home(os.environ) / FOLDER / NAME
    return [str(place_of(config.path)), *(load_roots(own) if own.is_file() else ())]


def _config_folder(config: Config) -> Path:
    """The folder of the config, or the one that it would be in."""
    if config.folder is not None:
        return config.folder
    return config.path.parent if config.path else nearest_folder()
