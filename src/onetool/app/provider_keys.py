"""Decides which API key of a model provider is sent to which address, by `ask` and by HTTP tools.

A project's config may name an address, but must not send the user's key there. A key is looked up in the current
config, then in the environment, in the keyring and in the user's own config in ~/.onetool. The user's keys go to the
provider itself and to addresses that the user's own config names; a config passed by path may also name this machine
and its network. A config found elsewhere that names another address gets only the keys that are stored with it
(`onetool auth set openai` there). A key bound to hosts is sent only to these.
"""

import logging
import os
from contextlib import suppress

from onetool.ask.model_choice import OLLAMA_SETTING, ModelChoice, Secret, ollama_url
from onetool.ask.providers import adapter
from onetool.config import Config, load_secrets
from onetool.config.find import user_config
from onetool.core.errors import ConfigError
from onetool.core.model_providers import PROVIDER_KEYS, PROVIDERS
from onetool.http.allowed_hosts import is_bound_to, is_private
from onetool.http.errors import RequestRefusedError
from onetool.http.url import Url, parse_url
from onetool.services.secrets import Fits, SecretHostError

log = logging.getLogger("onetool.ask")


def keys_for(config: Config, choice: ModelChoice) -> Secret:
    """Return a function that looks up a key for the address of `choice`."""
    secrets = config.secrets

    def own(name: str) -> str | None:
        try:
            return secrets.get(name, _fits(choice, name)) or _users_key(config, name, _fits(choice, name))
        except SecretHostError as bound:
            log.warning("%s", bound)
            return None

    if choice.base_url is None or _is_users_config(config) or not _is_other_address(config, choice):
        return own

    def stored_key(name: str) -> str | None:
        if _is_stored_with(config, name):
            return own(name)
        if own(name):
            words = "%s is not sent to %s, which %s names. To allow that, store it with the config: onetool auth set %s"
            log.warning(words, name, choice.base_url, config.path, name)
        return None

    return stored_key


def provider_key(config: Config, name: str) -> str | None:
    """Return a provider's key from any source, to compare it."""
    return config.secrets.get(name, lambda _: True) or _users_key(config, name, lambda _: True)


def key_urls(config: Config, name: str, *, is_stored: bool = True) -> list[Url]:
    """Return the URLs that a provider's key may go to: the provider, and `ask.base_url` if `ask` would send it there.

    A key that is not stored yet will be stored with the config, and may go to both.
    """
    provider = PROVIDER_KEYS[name]
    official = adapter(provider).base_url
    if provider == "ollama":  # any program of this machine may listen at the default address
        official = ollama_url({OLLAMA_SETTING: os.environ.get(OLLAMA_SETTING) or "ollama.com"})
    places, ask = [official], config.ask
    choice = ModelChoice(provider=provider, base_url=ask.base_url)
    if ask.base_url and provider == (ask.provider or "openai") and (not is_stored or keys_for(config, choice)(name)):
        places.append(ask.base_url)
    found: list[Url] = []
    for place in places:
        with suppress(RequestRefusedError):
            found.append(parse_url(place.strip()))
    return found


def _fits(choice: ModelChoice, name: str) -> Fits:
    """Return a function that checks whether a key bound to hosts may go to the address of `choice` or its provider."""

    def fits(hosts: tuple[str, ...]) -> bool:
        provider = PROVIDER_KEYS.get(name)
        own = None if provider is None else adapter(provider).base_url
        where = choice.base_url or (ollama_url(os.environ) if provider == "ollama" else own)
        try:
            return where is not None and is_bound_to(parse_url(where.strip()), hosts)
        except RequestRefusedError:
            return False

    return fits


def _is_stored_with(config: Config, name: str) -> bool:
    """Return whether the key is in the config or in a file beside it. A config may name any other file."""
    file, where = config.secrets.file, config.secrets.where(name)
    if where != "file" or file is None or config.path is None:
        return where == "config"
    return file.resolve().parent == config.path.resolve().parent


def _is_users_config(config: Config) -> bool:
    return config.whose == "own" or config.path is None or config.path == user_config()


def _users_key(config: Config, name: str, fits: Fits) -> str | None:
    """Return a key from ~/.onetool for the config of a project, which has its own secrets."""
    if _is_users_config(config):
        return None
    try:
        own = user_config()
        found = load_secrets(own if own.exists() else None, env=os.environ).get(name, fits)
    except ConfigError:  # reported where that config is used
        return None
    if found:
        config.secrets.mask_always(found)
    return found


def _is_other_address(config: Config, choice: ModelChoice) -> bool:
    """Return whether the address is neither the provider's nor, for a config named by the user, a private one."""
    try:
        url = parse_url((choice.base_url or "").strip())
    except RequestRefusedError:
        return True  # the request reports it
    if config.whose != "project" and is_private(url.host):
        return False
    provider = (choice.provider or "openai").strip().lower()  # the default if only an address is given
    return provider not in PROVIDERS or url[:3] != parse_url(adapter(provider).base_url)[:3]
