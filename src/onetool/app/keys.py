"""Which key goes where. A config that lies in somebody's project may name an address, but not whose key goes there.

Keys of the environment and of the keyring are the person's own. They go to the provider itself, to this machine and its
network, and wherever the person's own config (in ~/.onetool) says. A config found elsewhere gets those that are kept
with it: `onetool auth set openai` there is the person's word.
"""

import logging
from collections.abc import Callable
from pathlib import Path

from onetool.ask.choosing import Wanted
from onetool.ask.providers import NAMES, adapter
from onetool.config import Config
from onetool.handlers.http.hosts import is_private
from onetool.handlers.http.refusal import Refusal
from onetool.handlers.http.url import parse_url

log = logging.getLogger("onetool.ask")

KEPT = ("file", "config")  # where secrets of a config stand

Secret = Callable[[str], str | None]


def keys_for(config: Config, wanted: Wanted) -> Secret:
    """How to look up a key that is sent where `wanted` says."""
    secrets = config.secrets
    if wanted.base_url is None or _is_the_persons_own(config) or not _is_foreign(wanted.base_url):
        return secrets.get

    def kept(name: str) -> str | None:
        if secrets.where(name) in KEPT:
            return secrets.get(name)
        if secrets.get(name):
            words = (
                "%s is not sent to %s, which %s names: if that is meant, keep it with that config: onetool auth set %s"
            )
            log.warning(words, name, wanted.base_url, config.path, name)
        return None

    return kept


def _is_the_persons_own(config: Config) -> bool:
    return config.path is None or config.path.parent == Path.home() / ".onetool"


def _is_foreign(base_url: str) -> bool:
    try:
        host = parse_url(base_url.strip()).host
    except Refusal:
        return True  # it will be told
    return not is_private(host) and host not in {parse_url(adapter(name).base_url).host for name in NAMES}
