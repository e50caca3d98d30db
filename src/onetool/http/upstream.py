"""`UpstreamResponse`, the part of a response that a user may see: bounded, and without secrets."""

import json
from collections.abc import Callable
from typing import Annotated

import msgspec
from msgspec import Meta

from onetool.core.json_data import JsonTooCostlyError
from onetool.core.redaction import MASK
from onetool.http.body import MAX_SHOWN, is_text_type, json_of
from onetool.http.connection import HttpResponse
from onetool.http.errors import CUT_MARGIN, Redact
from onetool.http.response import mime_of, text_of
from onetool.http.url import HttpRequest

HIDDEN = ("set-cookie", "set-cookie2")  # sessions at that server, which only the tool needs


class UpstreamResponse(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One response of the server behind an HTTP tool, without secrets."""

    method: str
    url: str
    status: int
    text: Annotated[str, Meta(description="The reason phrase after the status.")] = ""
    headers: Annotated[dict[str, str], Meta(description="By name in lower case; `set-cookie` is hidden.")]
    ms: Annotated[float, Meta(description="From the request to the end of the response, including retries.")]
    size: Annotated[int, Meta(description="Bytes of the body.")]
    body: Annotated[str | None, Meta(description="As text; null without a body, or if it is not text.")]
    cut: Annotated[bool, Meta(description="Whether the body is cut to its beginning.")] = False
    step: Annotated[str, Meta(description="The name of the request, if the tool sends several.")] = ""


OnResponse = Callable[[UpstreamResponse], None]
ShowResponse = Callable[[], UpstreamResponse]


def shown_response(
    request: HttpRequest, answer: HttpResponse, seconds: float, redact: Redact, step: str = ""
) -> UpstreamResponse:
    """Return the part of a response that a user may see. The body of a streamed one is not read."""
    headers = {name: MASK if name in HIDDEN else value for name, value in answer.headers.items()}
    body, is_cut = _shown_body(answer, redact)
    return UpstreamResponse(
        method=request.method,
        url=redact(request.url.text),
        status=answer.status,
        text=redact(answer.reason),
        headers=redact(headers),
        ms=round(seconds * 1000, 1),
        size=len(answer.body),
        body=body,
        cut=is_cut,
        step=step,
    )


def _shown_body(answer: HttpResponse, redact: Redact) -> tuple[str | None, bool]:
    media = mime_of(answer)
    if not answer.body or (media and not is_text_type(media) and not media.endswith("json")):
        return None, False
    text = text_of(answer)
    try:
        value = json_of(answer.body)
        if (clean := redact(value)) != value:  # in the text, escapes may hide a secret
            text = json.dumps(clean, ensure_ascii=False, indent=2)
    except (msgspec.MsgspecError, UnicodeError, JsonTooCostlyError):
        pass
    if len(text) <= MAX_SHOWN:
        return redact(text), False
    return redact(text[: MAX_SHOWN + CUT_MARGIN])[:MAX_SHOWN], True
