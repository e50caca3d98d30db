"""The endpoint of a provider: its base URL, the only allowed host; and errors from its use, without the key.

An adapter reports the provider's message. This module adds what only the sender knows: the URL, the number of attempts
and the name of the key.
"""

import os
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from errno import ECONNREFUSED
from typing import TYPE_CHECKING
from urllib.parse import urljoin

from onetool.ask.errors import ModelError, NoModelError
from onetool.ask.providers import Adapter, adapter
from onetool.core.errors import ToolFailure
from onetool.core.model_providers import PROVIDERS, key_name
from onetool.core.redaction import MASK
from onetool.core.text import did_you_mean
from onetool.http.allowed_hosts import GLOBAL, AllowedHosts, HostRule, reach
from onetool.http.errors import (
    LOOKED_AT,
    ConnectTimeoutError,
    InvalidResponseError,
    RequestRefusedError,
    RequestTimeoutError,
    ResponseTooLargeError,
    WireError,
    in_short,
)
from onetool.http.url import Url, escape_unsafe, is_address, parse_url

if TYPE_CHECKING:
    from onetool.http.connection import HttpResponse

SETTING = "ask.base_url"


class Endpoint:
    """A base URL. `with_key` tells whether a key is sent there; `setting` is the setting's name, for messages."""

    def __init__(self, text: str, with_key: bool = False, setting: str = SETTING) -> None:
        try:
            if "?" in text or "#" in text:
                raise RequestRefusedError("a base URL can't contain ? or #")
            url = parse_url(text.strip())
        except RequestRefusedError as refusal:
            hints = (*refusal.hints, "an example of a base URL: http://127.0.0.1:8000/v1")
            raise NoModelError(f"{setting} can't be used: {refusal}", "no_provider", hints) from None
        self._url = url._replace(target=url.target.rstrip("/"))  # paths added to it begin with a slash
        self.text = self._url.text
        self.setting = setting
        if url.scheme == "https" or not with_key:
            self.hosts = AllowedHosts([HostRule(url.authority, allow_private=True)])
        else:
            # Connections are pooled by their rule. The trailing dot makes this rule differ although the host is the
            # same, so a connection that was opened without a key is never reused with one.
            host = url.authority if is_address(url.host) else f"{url.host}.:{url.port}"
            self.hosts = _PrivateHosts([HostRule(host, allow_private=True)])

    def url(self, path: str) -> Url:
        return self._url._replace(target=self._url.target + escape_unsafe(path))

    @property
    def authority(self) -> str:
        return self._url.authority

    @property
    def is_loopback(self) -> bool:
        host = self._url.host
        return host in ("localhost", "::1") or host.endswith(".localhost") or (is_address(host) and host[:4] == "127.")


class _PrivateHosts(AllowedHosts):
    """Allowed hosts with private addresses only: without TLS, a key could be read on a public network."""

    def check_address(self, rule: HostRule, address: str, url: Url) -> None:
        super().check_address(rule, address, url)
        if reach(address) == GLOBAL:
            raise RequestRefusedError(
                f"the key is not sent to {url.authority}: http:// would not encrypt it",
                [f"use https:// in {SETTING}, or remove the key if the server needs none"],
            )


# Errors

MAX_MESSAGE = 1000  # characters of a message
EXCERPT = 200  # characters of an unexpected response
MIN_KEY = 8  # shorter keys like `none` or `ollama`, for local servers, aren't secret
MAX_NAMES = 8  # models named in a hint


class ProviderErrors:
    """A factory of errors for one model at one endpoint."""

    def __init__(self, adapter: Adapter, model: str, endpoint: Endpoint, key: str | None) -> None:
        self._adapter, self._model, self._endpoint, self._key = adapter, model, endpoint, key
        self._key_forms = key if key and len(key) >= MIN_KEY else None

    def without_key(self, body: bytes) -> bytes:
        """Return the body with the key masked, since some servers repeat it. Call this before cutting the body."""
        return body.replace(self._key_forms.encode(), MASK.encode()) if self._key_forms else body

    def masked(self, text: str, most: int = MAX_MESSAGE) -> str:
        """Return the text on one line, with the key masked."""
        return in_short(text.replace(self._key_forms, MASK) if self._key_forms else text, most)

    def from_http_failure(self, failure: ToolFailure) -> ModelError:
        """Return the ModelError for a failure of our HTTP client."""
        where = self._endpoint.authority
        if isinstance(failure, ResponseTooLargeError):
            return ModelError(f"the response of {where} is too large", "garbled")
        if isinstance(failure, RequestTimeoutError) and not isinstance(failure, ConnectTimeoutError):
            return ModelError(str(failure), "timeout")
        reason = "garbled" if isinstance(failure, InvalidResponseError) else "unreachable"
        # Connection refused on this machine: nothing is listening, and a retry would not help.
        is_not_running = self._endpoint.is_loopback and str(failure).endswith(f": {os.strerror(ECONNREFUSED)}")
        again = isinstance(failure, WireError) and failure.again and not is_not_running
        return ModelError(str(failure), reason, failure.hints, again=again)

    def not_json(self, answer: "HttpResponse") -> ModelError:
        """Return the error for a successful response that is not JSON, usually an HTML page."""
        begins = self.masked(answer.body[:LOOKED_AT].decode("utf-8", "replace"), EXCERPT) or "(nothing)"
        hint = f"is {self._endpoint.text} the URL of this API? ({self._endpoint.setting})"
        return ModelError(f"{self._endpoint.authority} did not answer with JSON: {begins}", "garbled", [hint])

    def redirected(self, answer: "HttpResponse", path: str) -> ModelError:
        here = self._endpoint.url(path).text
        location = answer.headers.get("location", "").strip()
        try:
            there = urljoin(here, location) if location else ""
        except ValueError:
            there = location
        words = f"{self._endpoint.authority} answered {answer.status}, a redirect to {there or 'nowhere'}"
        base = there.removesuffix(path)
        hint = f"redirects are not followed; if that URL is right, set {self._endpoint.setting} to {base}"
        return ModelError(words, "unreachable", [hint] if there else (), status=answer.status)

    def explained(
        self, error: ModelError, *, tries: int = 1, was_cut_off: bool = False, models: Iterable[str] = ()
    ) -> ModelError:
        """Return the error with the number of attempts, hints and a masked key."""
        text = str(error)
        if was_cut_off:
            text = f"the response was interrupted: {text}"
        if tries > 1:
            text += f" (tried {tries} times)"
        hints = error.hints if was_cut_off else dict.fromkeys((*error.hints, *self._hints(error, list(models))))
        return ModelError(
            self.masked(text),
            error.reason,
            [self.masked(hint) for hint in hints],
            status=error.status,
            again=error.again,
            wait=error.wait,
            window=error.window,
        )

    def _hints(self, error: ModelError, models: list[str]) -> Iterator[str]:
        if error.wait:
            yield f"the provider asks to wait {_duration(error.wait)}"
        match error.reason:
            case "unauthorized":
                provider, name = self._adapter.name, key_name(self._adapter.name)
                if self._key is not None:
                    yield f"the key sent was {name}: `onetool auth set {provider}` replaces it"
                elif provider == "ollama" and self._is_own:
                    yield f"{name} is sent only if OLLAMA_HOST or ask.base_url is set"
                else:
                    yield f"{name} is not set: `onetool auth set {provider}` stores a key"
            case "model_not_found":
                family = f"{self._model.partition('-')[0]}-"  # gpt-, claude-: the prefix of a provider's default model
                known = (name for name in PROVIDERS if (adapter(name).model or "").startswith(family))
                some = ", ".join(models[:MAX_NAMES]) + (", …" if len(models) > MAX_NAMES else "")
                if models:
                    yield f"choose another with --model: {did_you_mean(self._model, models) or some}"
                else:
                    yield "choose another with --model, or ask.model in the config"
                if (provider := next(known, None)) not in (None, self._adapter.name) and self._is_own:
                    yield f"{self._model} is a model of another provider: --provider {provider}"
            case "overloaded" if not error.wait:
                yield f"the request went to {self._endpoint.text}; try again later, or use another model"
            case "unreachable" if error.status is None:
                name, place = self._adapter.name, self._endpoint
                if place.is_loopback:
                    start = ": `ollama serve` starts it" if name == "ollama" else ""
                    yield f"is it running? {name} is expected at {place.text}{start}"
                elif self._is_own:
                    yield f"is {place.authority} reachable from here? {place.setting} can set another URL"
                else:
                    yield f"{place.setting} is {place.text}"
            case "quota":
                yield f"waiting does not help: see the billing page of {self._adapter.name}, or use another --provider"
            case "too_long":
                yield "--new-session starts without history; --menu run shows the model one tool instead of all"
            case "timeout":
                yield "ask.timeout_s in the config sets how long a model may take for one step"
            case "bad_request" if error.status == 404 and not self._is_own:
                yield f"{self._endpoint.setting} is {self._endpoint.text}"

    @property
    def _is_own(self) -> bool:
        return self._endpoint.text == self._adapter.base_url


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{max(seconds, 1):.0f} s"
    try:
        then = datetime.now().astimezone() + timedelta(seconds=seconds)
    except OverflowError:
        return "a very long time"
    how_long = f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.0f} h"
    return f"{how_long}, at {then:%H:%M}" + (f" on {then:%Y-%m-%d}" if seconds > 43_200 else "")
