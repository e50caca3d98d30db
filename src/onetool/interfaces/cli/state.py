"""Where commands find state that is not in files: the database of the config, if it has one."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from onetool.database import ReplicaDatabase

WORDS = (b"database", b"include")  # a config without these has no database


def state_database(explicit: str | None) -> "ReplicaDatabase | None":
    """It is closed when the command ends. A config that can't have one is not read.

    Raises ConfigError if it can't be used. One that is away is no error here.
    """
    from onetool.config.find import find

    found = find(explicit)
    if found.config is None or not _may_have_one(found.config):
        return None
    from onetool.app.database import AppDatabase
    from onetool.config import load_config

    opened = AppDatabase(load_config(found))
    context = click.get_current_context(silent=True)
    if context is not None:
        context.find_root().call_on_close(opened.close)
    return opened.get()


def _may_have_one(config: Path) -> bool:
    try:
        text = config.read_bytes()
    except OSError:
        return True  # reading it tells why
    return any(word in text for word in WORDS)
