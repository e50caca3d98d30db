"""HTTP for tools: `safe_request`, `api_headers` and `lazy_client`.

`safe_request` returns errors instead of raising them. It works with httpx clients and any client with the same methods,
and imports none.
"""

from collections.abc import Awaitable, Callable
from functools import partial
from inspect import isawaitable, iscoroutine, iscoroutinefunction
from threading import RLock
from typing import Any, Protocol, TypeVar, overload

from onetool.core.errors import message_of
from onetool.sdk.context import get_secret, redacted

MAX_BODY = 200

RequestOutcome = tuple[bool, Any]
"""(True, data), or (False, error message)."""


class ResponseLike(Protocol):
    status_code: int


class ClientLike(Protocol):
    def request(self, *args: Any, **kw: Any) -> ResponseLike: ...


class AsyncClientLike(Protocol):
    def request(self, *args: Any, **kw: Any) -> Awaitable[ResponseLike]: ...


@overload
def safe_request(client: ClientLike | None, method: str, url: str, **kw: Any) -> RequestOutcome: ...
@overload
def safe_request(client: AsyncClientLike, method: str, url: str, **kw: Any) -> Awaitable[RequestOutcome]: ...
def safe_request(client: Any, method: str, url: str, **kw: Any) -> RequestOutcome | Awaitable[RequestOutcome]:
    """Send a request and return `(True, data)` or `(False, message)`. With an async client, await the result. The data
    is decoded JSON if the response has a JSON content type (None for an empty body), else text.

    The message is `HTTP error (404): …` with the first 200 characters of the body, or `Request failed: …` if there is
    no readable response. `kw` is passed to the client: `params`, `json`, `headers`, `timeout` …
    """
    try:
        request = getattr(client, "request", None)
        if request is None:
            raise TypeError("there is no client (is its secret missing?)")
        send = partial(request, method, url, **kw)
        if iscoroutinefunction(request):
            return _send_later(send)
        response = send()
        if isawaitable(response):  # a sync function that wraps an async one
            return _send_later(lambda: response)
        return _reply(response)
    except Exception as error:  # noqa: BLE001 - each client has its own errors; none may be raised
        return _failure(error)


def api_headers(secret_name: str, header_name: str = "Authorization", prefix: str = "Bearer ") -> dict[str, str]:
    """Return a header with a secret: `{"Authorization": "Bearer …"}`; an empty dict if the secret is not set. A space
    follows `prefix` if it is a word (`"Token"`), but not otherwise (`"key="`, `""`).

    Raises ValueError for secrets that are invalid in a header: a line break would start another header.
    """
    secret = get_secret(secret_name)
    if not secret:
        return {}
    value = f"{prefix} {secret}" if prefix[-1:].isalnum() else f"{prefix}{secret}"
    if not (value.isascii() and value.isprintable()):
        raise ValueError(
            f"The secret {secret_name} can't be sent in a header: it has a line break, a control character or a "
            "letter that is not ASCII. Is there a line break at its end?"
        )
    if not (header_name.isascii() and header_name.replace("-", "").replace("_", "").isalnum()):
        raise ValueError(f"{header_name!r} is not a valid header name")
    return {header_name: value}


async def _send_later(send: Callable[[], Awaitable[Any]]) -> RequestOutcome:
    try:
        return _reply(await send())
    except Exception as error:  # noqa: BLE001 - as above; cancellation is not an Exception and is raised
        return _failure(error)


def _reply(response: Any) -> RequestOutcome:
    status = response.status_code
    if status >= 400:
        body = redacted(response.text, for_caller=True)  # before truncating: half a secret would not be recognised
        body = body[:MAX_BODY]
        return False, f"HTTP error ({status}): {body or getattr(response, 'reason_phrase', '')}"
    location = response.headers.get("location")
    if 300 <= status < 400 and location:  # the client doesn't follow redirects, so there is no data
        return False, f"HTTP error ({status}): redirects to {location}; pass follow_redirects=True to follow"
    kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    is_json = kind == "application/json" or kind.endswith("+json")
    if status == 204 or (is_json and not response.content.strip()):
        return True, None
    if not is_json:
        return True, response.text
    try:
        return True, response.json()
    except ValueError as error:
        raise ValueError(f"the response is not valid JSON: {error}") from None


def _failure(error: Exception) -> RequestOutcome:
    return False, f"Request failed: {message_of(error) or type(error).__name__}"


# `lazy_client`

C = TypeVar("C")


def lazy_client(factory: Callable[[], C], secret_name: str | None = None) -> Callable[[], C | None]:
    """Return a function that creates a client on its first call and then always returns the same one, in all threads.
    If the factory raises, the next call tries again.

    With `secret_name`, the function returns None while the secret is not set. The factory must be a sync function, for
    async clients too (`lambda: httpx.AsyncClient()`): an awaited client would belong to one event loop.
    """
    made: list[C] = []  # a list, because a factory may return None
    lock = RLock()  # a factory that calls get_client gets a RecursionError, not a deadlock

    def get_client() -> C | None:
        if made:
            return made[0]
        if secret_name is not None and not get_secret(secret_name):
            return None
        with lock:
            if not made:
                client = factory()
                if iscoroutine(client):
                    client.close()  # avoids the "never awaited" warning
                    raise TypeError("lazy_client takes a sync function that returns the client, not an async one")
                made.append(client)
            return made[0]

    return get_client
