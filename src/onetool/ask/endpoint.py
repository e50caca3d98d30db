"""The endpoint of a provider: its base URL, the only host that may be called; and errors of its use, without the key.

An adapter reports what the provider said. Only the sender knows the rest, which is added here: the URL, the number of
tries, the name of the key.
"""

import os
from collections.abc import Iterable, Iterator
from errno import ECONNREFUSED
from typing import TYPE_CHECKING

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
    """A base URL. `with_key`: whether a key is sent there. `setting` names the setting, for messages."""

    def __init__(self, text: str, with_key: bool = False, setting: str = SETTING) -> None:
        try:
            if "?" in text or "#" in text:
                raise RequestRefusedError("it ends with its path, and can have no ? or # in it")
            url = parse_url(text.strip())
        except RequestRefusedError as refusal:
            hints = (*refusal.hints, "it looks like this: http://127.0.0.1:8000/v1")
            raise NoModelError(f"{setting} can't be used: {refusal}", "no_provider", hints) from None
        self._url = url._replace(target=url.target.rstrip("/"))  # paths below it begin with a slash
        self.text = self._url.text
        self.setting = setting
        self.hosts = _hosts(self._url, with_key)

    def url(self, path: str) -> Url:
        return self._url._replace(target=self._url.target + escape_unsafe(path))

    @property
    def authority(self) -> str:
        return self._url.authority

    @property
    def is_loopback(self) -> bool:
        host = self._url.host
        return host in ("localhost", "::1") or host.endswith(".localhost") or (is_address(host) and host[:4] == "127.")


def _hosts(url: Url, with_key: bool) -> AllowedHosts:
    if url.scheme == "https" or not with_key:
        return AllowedHosts([HostRule(url.authority, allow_private=True)])
    # Connections are kept by the rule that they were made by. This one is spelled otherwise, which means the same: a
    # connection that was made where no key was to be sent is not used for one.
    host = url.authority if is_address(url.host) else f"{url.host}.:{url.port}"
    return _PrivateHosts([HostRule(host, allow_private=True)])


class _PrivateHosts(AllowedHosts):
    """Allows only private addresses: without TLS, a key could be read on the way to others."""

    def check_address(self, rule: HostRule, address: str, url: Url) -> None:
        super().check_address(rule, address, url)
        if reach(address) == GLOBAL:
            raise RequestRefusedError(
                f"the key is not sent to {url.authority}: with http:// everybody on the way could read it",
                [f"write https:// in {SETTING}, or take the key away where the server needs none"],
            )


# Errors


MAX_MESSAGE = 1000  # characters of a message
EXCERPT = 200  # characters of what is not an answer
MIN_KEY = 8  # local servers are given keys like `none` or `ollama`: words that are no secrets
MAX_NAMES = 8  # models that are told


class ProviderErrors:
    """The errors of one model at one endpoint."""

    def __init__(self, adapter: Adapter, model: str, endpoint: Endpoint, key: str | None) -> None:
        self._adapter, self._model, self._endpoint, self._key = adapter, model, endpoint, key
        self._key_forms = key if key and len(key) >= MIN_KEY else None

    def without_key(self, body: bytes) -> bytes:
        """Return the body with the key masked: some servers repeat it. It is cut later: half a key can't be found."""
        return body.replace(self._key_forms.encode(), MASK.encode()) if self._key_forms else body

    def masked(self, text: str, most: int = MAX_MESSAGE) -> str:
        """Return a text on one line, and without the key."""
        return in_short(text.replace(self._key_forms, MASK) if self._key_forms else text, most)

    def from_http_failure(self, failure: ToolFailure) -> ModelError:
        """Return the ModelError for a failure of our HTTP client."""
        where = self._endpoint.authority
        if isinstance(failure, ResponseTooLargeError):
            return ModelError(f"the answer of {where} is larger than anybody could read", "garbled")
        if isinstance(failure, RequestTimeoutError) and not isinstance(failure, ConnectTimeoutError):
            return ModelError(str(failure), "timeout")
        reason = "garbled" if isinstance(failure, InvalidResponseError) else "unreachable"
        # Refused on this machine: nothing is listening, and a retry does not help.
        is_not_running = self._endpoint.is_loopback and str(failure).endswith(f": {os.strerror(ECONNREFUSED)}")
        again = isinstance(failure, WireError) and failure.again and not is_not_running
        return ModelError(str(failure), reason, failure.hints, again=again)

    def not_json(self, answer: "HttpResponse") -> ModelError:
        """Return the error for a successful response that is not JSON: mostly an HTML page."""
        begins = self.masked(answer.body[:LOOKED_AT].decode("utf-8", "replace"), EXCERPT) or "(nothing)"
        hint = f"is {self._endpoint.text} really the place of this API? ({self._endpoint.setting})"
        return ModelError(f"{self._endpoint.authority} answered with what is not JSON: {begins}", "garbled", [hint])

    def redirected(self, answer: "HttpResponse", path: str) -> ModelError:
        from urllib.parse import urljoin

        here = self._endpoint.url(path).text
        location = answer.headers.get("location", "").strip()
        try:
            there = urljoin(here, location) if location else ""
        except ValueError:
            there = location
        words = f"{self._endpoint.authority} answered {answer.status}, which leads to {there or 'nowhere'}"
        base = there.removesuffix(path)
        hint = f"redirects are not followed: if that is where it is, set {self._endpoint.setting} to {base}"
        return ModelError(words, "unreachable", [hint] if there else (), status=answer.status)

    def explained(
        self, error: ModelError, *, tries: int = 1, was_cut_off: bool = False, models: Iterable[str] = ()
    ) -> ModelError:
        """Return the error with the number of tries, hints and a masked key."""
        text = str(error)
        if was_cut_off:
            text = f"the answer broke off: {text}"
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
        """Yield what to do."""
        if error.wait:
            yield f"it asks to be tried again in {_duration(error.wait)}"
        match error.reason:
            case "unauthorized":
                provider, name = self._adapter.name, key_name(self._adapter.name)
                if self._key is not None:
                    yield f"the key that was sent is {name}: `onetool auth set {provider}` sets another one"
                elif provider == "ollama" and self._is_own:
                    yield f"{name} is sent only where OLLAMA_HOST or ask.base_url names the place"
                else:
                    yield f"there is no {name}: `onetool auth set {provider}` keeps one"
            case "model_not_found":
                yield from self._about_model(models)
            case "overloaded" if not error.wait:
                yield f"it was asked at {self._endpoint.text}; try again later, or another model"
            case "unreachable" if error.status is None:
                name, place = self._adapter.name, self._endpoint
                if place.is_loopback:
                    start = ": `ollama serve` starts it" if name == "ollama" else ""
                    yield f"is it running? {name} is expected at {place.text}{start}"
                elif self._is_own:
                    yield f"is there a way to {place.authority} from here? {place.setting} can name another place"
                else:
                    yield f"{place.setting} is {place.text}"
            case "quota":
                yield f"waiting does not help: see the billing page of {self._adapter.name}, or use another --provider"
            case "too_long":
                yield "--new-session begins with nothing; --menu run shows the model one tool in place of all"
            case "timeout":
                yield "ask.timeout_s in the config sets how long a model may take for one step"
            case "bad_request" if error.status == 404 and not self._is_own:
                yield f"{self._endpoint.setting} is {self._endpoint.text}"

    @property
    def _is_own(self) -> bool:
        return self._endpoint.text == self._adapter.base_url

    def _about_model(self, models: list[str]) -> Iterator[str]:
        wanted = self._model
        family = f"{wanted.partition('-')[0]}-"  # gpt-, claude-: as the provider's default model
        provider = next((name for name in PROVIDERS if (adapter(name).model or "").startswith(family)), None)
        if models:
            question = did_you_mean(wanted, models)
            some = ", ".join(models[:MAX_NAMES]) + (", …" if len(models) > MAX_NAMES else "")
            yield f"--model names another one: {question or f'there are {some}'}"
        else:
            yield "--model, or ask.model in the config, names another one"
        if provider is not None and provider != self._adapter.name and self._is_own:
            yield f"{wanted} is a model of another provider: --provider {provider}"


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{max(seconds, 1):.0f} s"
    from datetime import datetime, timedelta

    try:
        then = datetime.now().astimezone() + timedelta(seconds=seconds)
    except OverflowError:
        return "a very long time"
    how_long = f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.0f} h"
    return f"{how_long}, at {then:%H:%M}" + (f" on {then:%Y-%m-%d}" if seconds > 43_200 else "")
