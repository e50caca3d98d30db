"""HTTP for tools: `safe_request`, `api_headers` and `lazy_client`.

`safe_request` returns errors instead of raising them. It works with the clients of httpx and whatever has the same
methods; it imports none.
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
"""(True, the data), or (False, what went wrong)."""


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
    """Send a request: `(True, data)`, or `(False, message)`. With an async client, await it.

    The data is decoded JSON if the answer's content type says so (None for an empty body), else text. The message is
    `HTTP error (404): …` with the first 200 characters of the body, or `Request failed: …` for everything that kept
    the answer from arriving or from being read. `kw` goes to the client: `params`, `json`, `headers`, `timeout` …
    """
    try:
        request = getattr(client, "request", None)
        if request is None:
            raise TypeError("there is no client; is the secret that it needs missing?")
        send = partial(request, method, url, **kw)
        if iscoroutinefunction(request):
            return _send_later(send)
        response = send()
        if isawaitable(response):  # a plain function around an async one
            return _send_later(lambda: response)
        return _reply(response)
    except Exception as error:  # noqa: BLE001 - each client has errors of its own, and none may pass
        return _failure(error)


def api_headers(secret_name: str, header_name: str = "Authorization", prefix: str = "Bearer ") -> dict[str, str]:
    """Return the header that carries a secret: `{"Authorization": "Bearer …"}`; no header at all without the secret.

    `prefix` stands before the secret; a word gets a space after it (`"Token"`), other things don't (`"key="`, `""`).
    Raises ValueError for a secret that no header can carry: a line break in it would start a header of its own.
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
        raise ValueError(f"{header_name!r} can't be the name of a header")
    return {header_name: value}


async def _send_later(send: Callable[[], Awaitable[Any]]) -> RequestOutcome:
    try:
        return _reply(await send())
    except Exception as error:  # noqa: BLE001 - as above; being cancelled is not an Exception and does pass
        return _failure(error)


def _reply(response: Any) -> RequestOutcome:
    status = response.status_code
    if status >= 400:
        body = redacted(response.text, for_caller=True)  # before it is cut: half a secret would not be recognised
        body = body[:MAX_BODY]
        return False, f"HTTP error ({status}): {body or getattr(response, 'reason_phrase', '')}"
    location = response.headers.get("location")
    if 300 <= status < 400 and location:  # the client was told not to follow, and there is nothing else to give
        return False, f"HTTP error ({status}): redirects to {location}; follow_redirects=True goes there"
    return True, _data(response)


def _data(response: Any) -> Any:
    kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    is_json = kind == "application/json" or kind.endswith("+json")
    if response.status_code == 204 or (is_json and not response.content.strip()):
        return None
    if not is_json:
        return response.text
    try:
        return response.json()
    except ValueError as error:
        raise ValueError(f"the answer is not valid JSON: {error}") from None


def _failure(error: Exception) -> RequestOutcome:
    return False, f"Request failed: {message_of(error) or type(error).__name__}"


# `lazy_client`: a client that is made when it is first needed, once, whoever asks first.

C = TypeVar("C")


def lazy_client(factory: Callable[[], C], secret_name: str | None = None) -> Callable[[], C | None]:
    """Return a function that gives the client: the first call makes it, all others get the same one, in every thread.

    A factory that raises is tried again by the next call. With `secret_name` the answer is None, and nothing is made,
    as long as there is no such secret. The factory is a plain function, for async clients too
    (`lambda: httpx.AsyncClient()`): what has to be awaited belongs to one event loop, and is not for everybody.
    """
    made: list[C] = []  # a list and not a None to compare with: a factory may well give None
    lock = RLock()  # a factory that asks for its own client gets a RecursionError; with a plain lock it would hang

    def get_client() -> C | None:
        if made:
            return made[0]
        if secret_name is not None and not get_secret(secret_name):
            return None
        with lock:
            if not made:
                client = factory()
                if iscoroutine(client):
                    client.close()  # else Python warns that nobody awaited it
                    raise TypeError("lazy_client takes a plain function that returns the client, not an async one")
                made.append(client)
            return made[0]

    return get_client
