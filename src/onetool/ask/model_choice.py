"""Chooses the provider and model if they are not configured: a provider with a key, else Ollama on this machine.

A key is sent to its provider's own URL, or to the URL in ask.base_url or OLLAMA_HOST. Ollama's default is a port of
this machine, where another program may be listening. So OLLAMA_API_KEY is not sent there unless OLLAMA_HOST or
ask.base_url is set; a local Ollama needs no key.
"""

import asyncio
import os
import re
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from onetool.ask.endpoint import SETTING, Endpoint
from onetool.ask.errors import ModelError, NoModelError
from onetool.ask.model_client import ModelClient
from onetool.ask.providers import Adapter, ProviderRequest, adapter, ranked_providers
from onetool.core.model_providers import PROVIDERS, key_name
from onetool.core.text import or_rather
from onetool.http.client import HttpClient

PROBE = 0.5  # seconds to wait for an Ollama that isn't configured
OLLAMA_SETTING = "OLLAMA_HOST"
OLLAMA_PORT = 11434
MAX_PROBED = 6  # models checked for tool support …
PROBE_TOTAL = 1.0  # … and seconds for all of them
VERSION = re.compile(r"/v1(beta)?$")  # often appended to base URLs, because OpenAI's has it
WILDCARD_HOSTS = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - compared, not bound

_PORT = re.compile(r"[0-9]{1,5}")
_AUTHORITY = re.compile(r"(\[[^\]]*\]|[^:]*)(?::([^:]*))?")


class ModelChoice(msgspec.Struct, frozen=True, kw_only=True):
    """The provider, model and URL that the config or the user names."""

    provider: str | None = None
    model: str | None = None
    base_url: str | None = None
    timeout: float = 600.0


Secret = Callable[[str], str | None]


async def choose_model(
    choice: ModelChoice, secret: Secret, client: HttpClient, env: Mapping[str, str] = os.environ
) -> ModelClient:
    """Return a client for the chosen model. Raises NoModelError if something is missing.

    Raises ModelError if a server must be asked for its models and does not answer.
    """
    name = chosen_provider(choice, secret)
    chosen = adapter(name or "ollama")
    base_url, key, setting = _place(chosen, choice, secret, env)

    def make(model: str) -> ModelClient:
        url = base_url or chosen.base_url
        return ModelClient(chosen, model, url, key, client, timeout=choice.timeout, setting=setting)

    if name is None:  # a local Ollama
        try:
            names = await make("").names(PROBE)
        except ModelError:
            raise _no_provider_error(ollama_url(env)) from None
        return make(choice.model) if choice.model else await _first_model(make, names)
    is_own = base_url is None or Endpoint(base_url, setting=setting).text == chosen.base_url
    if is_own and chosen.rank is not None and not key:
        raise NoModelError(
            f"there is no key for {name}: {key_name(name)} is not set",
            "no_key",
            [f"store it with `onetool auth set {name}`, or set {key_name(name)} in the environment"],
            name,
        )
    if named := choice.model or (chosen.model if is_own else None):
        return make(named)
    some = make("")
    try:
        names = await some.names()
    except ModelError as error:
        if error.reason in ("unreachable", "timeout", "unauthorized"):
            raise
        raise _no_model_error(some, f"its models can't be listed: {error}") from None
    return await _first_model(make, names)


def model_lister(choice: ModelChoice, secret: Secret, client: HttpClient) -> ModelClient:
    """Return a client that lists the models of the provider in `choice`. Raises ModelError for an invalid address."""
    chosen = adapter(_known_provider(choice.provider or "openai"))
    base_url, key, setting = _place(chosen, choice, secret, os.environ)
    url = base_url or chosen.base_url
    return ModelClient(chosen, "", url, key, client, timeout=choice.timeout, setting=setting)


def _place(
    chosen: Adapter, choice: ModelChoice, secret: Secret, env: Mapping[str, str]
) -> tuple[str | None, str | None, str]:
    """Return the address (None for the provider's own), the key to send there, and the name of the setting."""
    key, base_url, setting = _key(chosen.name, secret), choice.base_url, SETTING
    if base_url is not None and not VERSION.search(chosen.base_url):
        base_url = VERSION.sub("", base_url.strip().rstrip("/"))
    if base_url is None and chosen.name == "ollama":
        base_url, setting = ollama_url(env), OLLAMA_SETTING
        key = key if _host(env) else None
    return base_url, key, setting


# Which provider


def chosen_provider(choice: ModelChoice, secret: Secret) -> str | None:
    """Return the provider to use; None if only a local Ollama is left."""
    if choice.provider is not None:
        return _known_provider(choice.provider)
    if choice.base_url is not None:
        return "openai"  # the API of most servers
    return next((name for name in ranked_providers() if _key(name, secret)), None)


def _key(provider: str, secret: Secret) -> str | None:
    return (secret(key_name(provider)) or "").strip() or None


def _known_provider(name: str) -> str:
    plain = name.strip().lower()
    if plain in PROVIDERS:
        return plain
    raise NoModelError(
        f"there is no provider {name[:100]!r}{or_rather(plain, PROVIDERS)}",
        "no_provider",
        [f"the providers are {', '.join(PROVIDERS)}; for any server with OpenAI's API use openai and set {SETTING}"],
    )


def _no_provider_error(base_url: str) -> NoModelError:
    first, *others = ranked_providers()
    return NoModelError(
        f"no model to ask: no key for {', '.join([first, *others])}, and Ollama does not respond at {base_url}",
        "no_provider",
        [
            f"store a key: `onetool auth set {first}` (or {', '.join(others)})",
            f"or start Ollama: `ollama serve`; {OLLAMA_SETTING} sets its address",
            'or name a server in the config: ask: {provider: openai, base_url: "http://…/v1", model: NAME}',
        ],
        first,
    )


def ollama_url(env: Mapping[str, str]) -> str:
    """Return Ollama's URL from OLLAMA_HOST, read as Ollama does: a host, a host with a port, or a URL."""
    text = _host(env)
    if text == "ollama.com":
        text = "https://ollama.com"
    scheme, is_url, rest = text.rpartition("://")
    authority, slash, path = rest.partition("/")
    port = {"http": 80, "https": 443}.get(scheme, OLLAMA_PORT)
    found = _AUTHORITY.fullmatch(authority)
    host = (found[1] if found else authority).strip("[]")
    if found and _PORT.fullmatch(found[2] or "") and int(found[2]) <= 65535:
        port = int(found[2])  # an invalid port is ignored, as Ollama does
    host = WILDCARD_HOSTS.get(host, host)
    return f"{scheme if is_url else 'http'}://{f'[{host}]' if ':' in host else host}:{port}{slash}{path}".rstrip("/")


def _host(env: Mapping[str, str]) -> str:
    """Return the configured host of Ollama, or an empty string."""
    return env.get(OLLAMA_SETTING, "").strip().strip("\"'")


# Which model


async def _first_model(make: Callable[[str], ModelClient], names: list[str]) -> ModelClient:
    """Return the first model; from Ollama, the first model that can call tools, if any reports this."""
    some = make("")
    if not names:
        raise _no_model_error(some, "its list is empty")
    if some.provider != "ollama" or len(names) == 1:
        return make(names[0])

    async def can_call_tools(name: str) -> bool:
        try:
            shown: Any = await some.fetch(ProviderRequest("/api/show", {"model": name}), PROBE_TOTAL)
        except ModelError:
            return False
        able = shown.get("capabilities") if isinstance(shown, dict) else None
        return isinstance(able, list) and "tools" in able

    names = names[:MAX_PROBED]
    answers = await asyncio.gather(*map(can_call_tools, names))
    return make(next((name for name, able in zip(names, answers, strict=True) if able), names[0]))


def _no_model_error(some: ModelClient, why: str) -> NoModelError:
    hints = ["choose a model with --model, or ask.model in the config"]
    if some.provider == "ollama":
        hints = ["`ollama pull qwen3` downloads a model that can call tools"]
    return NoModelError(f"no model is configured, and none was found at {some.base_url}: {why}", "no_model", hints)
