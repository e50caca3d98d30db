"""`ResponseReader` turns a response into the value of a call, or into a failure that quotes the server.

`Selector` selects a part of the value with JMESPath, with limits on time, steps and size. A short expression can
create a huge value: `[@,@]|[@,@]|…` doubles its data with every step. Results are therefore counted wherever they are
walked through.
"""

import asyncio
import re
from base64 import b64encode
from codecs import BOM_UTF8, lookup
from collections.abc import Callable
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from math import isfinite
from typing import Any, TypeVar

import msgspec

from onetool.core.errors import ToolFailure, cut
from onetool.core.json_data import JsonTooCostlyError, StoreBlob, blob_record
from onetool.http.body import LARGE, StreamedText, TooDeepError, each_event, event_value, is_text_type, json_of
from onetool.http.connection import HttpResponse
from onetool.http.definition import ResponseOptions
from onetool.http.errors import LOOKED_AT, Redact, in_short, masked, quoted
from onetool.http.placeholders import TemplateError

MAX_EVENTS = 100_000  # of one response
MAX_EXCERPT = 300
MAX_SELECTOR = 4_000  # characters
NO_CONTENT = (204, 205)
JSON_TYPES = ("", "application/json", "text/json")
LARGE_ANSWER = 64 * 1024  # bytes: selecting from a larger answer is done in a thread
# Encodings that are slow or not text encodings.
_UNSUPPORTED_ENCODINGS = frozenset(("idna", "punycode", "unicode_escape", "raw_unicode_escape", "undefined", "utf_7"))
_PHRASES: dict[int, str] = {status.value: status.phrase for status in HTTPStatus}
_TAG = re.compile(r"<[^<>]*>")

T = TypeVar("T")
OnProgress = Callable[[float, float | None, str | None], None]


class ResponseReader:
    """A reader of responses with the options in a tool's `httpImpl.response`."""

    def __init__(self, response: ResponseOptions, now: Callable[[], float]) -> None:
        self._success = frozenset(response.success_codes) or range(200, 300)
        self._mode = response.error_mode
        self._now = now
        self._selector: Selector | None = None
        if response.selector.strip():
            pointer = "/response/selector"
            if response.encoding not in ("json", "sse", None):
                raise TemplateError(f"a selector needs data, and the encoding is {response.encoding}", pointer)
            try:
                self._selector = Selector(response.selector)
            except SelectorError as error:
                raise TemplateError(f"this is not a JMESPath expression: {error}", pointer) from None
        self._encoding = "json" if self._selector is not None else response.encoding

    async def value(
        self, answer: HttpResponse, url: str, store_result: StoreBlob, redact: Redact, clean: Redact | None = None
    ) -> Any:
        """Return the value. `redact` masks messages; `clean`, or else `redact`, masks data before the selection."""
        if answer.status not in self._success:
            return await _by_size(answer, lambda: self._other(answer, url, redact))
        encoding = self._encoding
        if encoding is None:
            media = mime_of(answer)
            is_json = not answer.body or media in JSON_TYPES or media.endswith("+json")
            if not is_json:
                is_json = isinstance(await _by_size(answer, lambda: _json_or_text(answer)), dict | list)
            encoding = "json" if is_json else "text" if is_text_type(media) else "binary"
        if encoding != "json" and answer.status in NO_CONTENT:
            return None
        if encoding == "binary":
            kind = _kind(answer, redact).lower()
            # Another process may lock the database for a while.
            return await asyncio.to_thread(lambda: blob_record("blob", _in_base64(answer, redact), kind, store_result))
        if encoding == "text":
            return await _by_size(answer, lambda: text_of(answer))
        if len(answer.body) < LARGE:
            value = _json(answer, url, redact)
        else:
            value = await asyncio.to_thread(_json, answer, url, redact)
        if self._selector is None:
            return value
        mask = clean or redact
        masked_value = await _by_size(answer, lambda: mask(value))  # half of a secret would stay unmasked
        return await self._selector.of(masked_value, len(answer.body), redact)

    async def events(self, answer: HttpResponse, url: str, on_event: OnProgress | None, redact: Redact) -> Any:
        """Report each event as it arrives, and return the list of all events."""
        pieces = answer.stream
        assert pieces is not None  # noqa: S101 - for the type checker: a stream was requested
        try:
            if answer.status not in self._success:
                answer.body = await pieces.read()
                return await _by_size(answer, lambda: self._other(answer, url, redact))
            if mime_of(answer) not in ("text/event-stream", ""):
                kind = in_short(_kind(answer, redact), 60)
                raise ToolFailure(f"{url} sent {kind} instead of a stream of events", reason="upstream_error")
            values, size = list[Any](), 0
            async for data in each_event(pieces):
                if len(values) == MAX_EVENTS:
                    raise ToolFailure(f"{url} sends more than {MAX_EVENTS:,} events", reason="too_large")
                values.append(event_value(data))
                size += len(data)
                if on_event is not None:
                    on_event(len(values), None, StreamedText(redact(data)))
        finally:
            pieces.close()
        return values if self._selector is None else await self._selector.of(redact(values), size, redact)

    def _other(self, answer: HttpResponse, url: str, redact: Redact) -> Any:
        """Return the value of a response that isn't a success, or raise the failure."""
        if self._mode == "empty":
            return None
        if self._mode == "return":
            return {"status": answer.status, "body": _json_or_text(answer)}
        status, hints = answer.status, list[str]()
        if status == 401:
            hints = ["it rejected the credentials: check the tool's auth, and the secrets that it names"]
        elif 300 <= status < 400 and (location := answer.headers.get("location")):
            target = quoted(location, redact, 200)
            hints = [f"it redirects to {target}; with request.followRedirects the tool follows it, if that is allowed"]
        elif seconds := retry_after(answer, self._now()):
            hints = [f"it asks for a retry in {seconds:.0f} s"]
        reason = quoted(answer.reason, redact, 60) if answer.reason.strip() else _PHRASES.get(status, "")
        excerpt = excerpt_of(answer, redact)
        message = f"{url} answered {f'{status} {reason}'.strip()}" + (f": {excerpt}" if excerpt else "")
        raise ToolFailure(message, reason="upstream_error", hints=hints)


async def _by_size(answer: HttpResponse, work: Callable[[], T]) -> T:
    return work() if len(answer.body) < LARGE else await asyncio.to_thread(work)


def _in_base64(answer: HttpResponse, redact: Redact) -> str:
    """Return the body as Base64. Secrets are masked first, because most of their forms can't be found in Base64."""
    text = answer.body.decode("latin-1")
    clean = redact(text)
    return b64encode(answer.body if clean == text else clean.encode("latin-1", "replace")).decode()


def text_of(answer: HttpResponse) -> str:
    """Return the body as text, decoded with its declared charset."""
    return answer.body.decode(_charset(answer), "replace").removeprefix("\ufeff")


def excerpt_of(answer: HttpResponse, redact: Redact) -> str:
    """Return an excerpt of the body on one line."""
    prefix = answer.body[:LOOKED_AT].decode(_charset(answer), "replace")
    text = masked(prefix, redact, goes_on=len(answer.body) > LOOKED_AT)
    if "html" in mime_of(answer):
        joined = _TAG.sub("", text)  # a secret may have contained a tag
        clean = redact(joined)
        text = _TAG.sub(" ", text) if clean == joined else clean
    return in_short(text, MAX_EXCERPT)


def _json(answer: HttpResponse, url: str, redact: Redact) -> Any:
    body = answer.body
    if not body or body.isspace():
        return None
    try:
        return _decoded(answer)
    except JsonTooCostlyError as error:
        reason = "output_invalid" if isinstance(error, TooDeepError) else "too_large"
        raise ToolFailure(f"the response of {url} {error}", reason=reason) from None
    except (msgspec.MsgspecError, UnicodeError) as error:
        why = str(error)
    kind = in_short(_kind(answer, redact), 60)
    declared = f" ({kind})" if kind and "json" not in mime_of(answer) else ""
    message = (
        f"the response of {url} is not JSON{declared}: {why}; it begins: {excerpt_of(answer, redact) or '(nothing)'}"
    )
    hint = "for other data, set response.encoding to text or binary"
    raise ToolFailure(message, reason="upstream_error", hints=(hint,))


def _decoded(answer: HttpResponse) -> Any:
    try:
        return json_of(answer.body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        charset = _charset(answer)
        if charset == "utf-8" and not answer.body.startswith(BOM_UTF8):
            raise
        return json_of(answer.body.decode(charset).removeprefix("\ufeff").encode("utf-8", "surrogatepass"))


def _json_or_text(answer: HttpResponse) -> Any:
    if not answer.body:
        return None
    try:
        return _decoded(answer)
    except (msgspec.MsgspecError, UnicodeError, JsonTooCostlyError):
        return text_of(answer)


def mime_of(answer: HttpResponse) -> str:
    """Return the media type of an answer, in lower case and without parameters."""
    return answer.headers.get("content-type", "").partition(";")[0].strip().lower()


def _kind(answer: HttpResponse, redact: Redact) -> str:
    """Return the Content-Type for display: masked, with its original spelling."""
    return masked(answer.headers.get("content-type", ""), redact).partition(";")[0].strip()


def _charset(answer: HttpResponse) -> str:
    kind = answer.headers.get("content-type", "")
    if "charset" not in kind.lower():
        return "utf-8"
    _, _, text = kind.lower().partition("charset=")
    try:
        codec = lookup(text.partition(";")[0].strip().strip("\"'")[:40])
    except (LookupError, ValueError):
        return "utf-8"
    is_text = getattr(codec, "_is_text_encoding", True)
    return codec.name if is_text and codec.name.replace("-", "_") not in _UNSUPPORTED_ENCODINGS else "utf-8"


def retry_after(answer: HttpResponse, now: float) -> float | None:
    """Return the number of seconds to wait according to Retry-After, which is a number or a date."""
    text = answer.headers.get("retry-after", "").strip()
    if not text:
        return None
    if text.isascii() and text.isdigit():
        return float(text[:12])
    try:
        seconds = parsedate_to_datetime(text).timestamp() - now
    except (ValueError, TypeError, OverflowError, IndexError):
        return None
    return max(0.0, seconds) if isfinite(seconds) else None


class SelectorError(ValueError):
    """An invalid JMESPath expression."""


class Selector:
    """A compiled expression.

    `await selector.of(data, size)` returns the part, or raises ToolFailure if that takes too long.
    """

    _WHAT, _DATA = "selector", "the response"  # in messages

    def __init__(self, text: str) -> None:
        import jmespath
        from jmespath.exceptions import JMESPathError
        from jmespath.functions import Functions

        if len(text) > MAX_SELECTOR:
            raise SelectorError(f"it has more than {MAX_SELECTOR:,} characters")
        try:
            self.tree = jmespath.compile(text).parsed
        except (JMESPathError, RecursionError, ValueError) as error:
            raise SelectorError(" ".join(str(error).split()) or "it is nested too deep") from None
        self._text, waiting = text, [self.tree]
        while waiting:  # unknown functions are reported now, not in the first call
            node = waiting.pop()
            if isinstance(node, dict):
                if (
                    node.get("type") == "function_expression"
                    and (name := node["value"]) not in Functions.FUNCTION_TABLE
                ):
                    known = ", ".join(sorted(Functions.FUNCTION_TABLE))
                    raise SelectorError(f"there is no function {name}(); known: {known}")
                waiting += node.get("children") or ()

    async def of(self, data: Any, size: int, redact: Redact = lambda value: value) -> Any:
        """Return the selected part. Large data is searched in a thread. `redact` masks messages that quote data."""
        if size <= LARGE_ANSWER:
            return self.now(data, redact)
        return await asyncio.get_running_loop().run_in_executor(None, self.now, data, redact)

    def now(self, data: Any, redact: Redact = lambda value: value) -> Any:
        from jmespath.exceptions import JMESPathError

        from onetool.http.jmespath_bounds import Interpreter, SelectionTooLargeError, count

        try:
            value = Interpreter().visit(self.tree, data)
            count(value)
            return value
        except SelectionTooLargeError as error:
            raise self._failure(str(error)) from None
        except RecursionError:
            raise self._failure("it is nested too deep") from None
        except (JMESPathError, TypeError, ValueError, OverflowError, AttributeError) as error:
            raise self._failure(quoted(str(error), redact, 300)) from None

    def _failure(self, why: str) -> ToolFailure:
        return ToolFailure(
            f"the {self._WHAT} {cut(self._text, 80)!r} can't be applied to {self._DATA}: {why}", reason="output_invalid"
        )
