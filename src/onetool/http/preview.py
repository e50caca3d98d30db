"""`previewed` shows the requests that an HTTP tool would send.

Nothing is sent and no secret is read. Secrets and values of earlier steps are filled in as random words that escaping
doesn't change, then these words are replaced by the text to display.
"""

from collections.abc import Iterable, Mapping
from secrets import token_hex
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta

from onetool.core.errors import Need, ToolFailure
from onetool.core.redaction import MASK
from onetool.http.allowed_hosts import binding_for, secret_need
from onetool.http.auth import with_header
from onetool.http.body import MAX_SHOWN
from onetool.http.files import file_preview

if TYPE_CHECKING:
    from onetool.http.client import HttpContext
    from onetool.http.placeholders import Placeholder
    from onetool.http.tool_request import ToolRequest
    from onetool.http.url import HttpRequest


class PreviewRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One request as it would be sent, without secrets."""

    method: str
    url: str
    headers: dict[str, str]
    body: Annotated[str | None, Meta(description="As text; null without a body, or if it is not text.")]
    step: Annotated[str, Meta(description="The name of the request, if the tool sends several.")] = ""
    notes: Annotated[
        tuple[str, ...], Meta(description="Values that are not known yet, and reasons why the request would fail.")
    ] = ()
    needs: Annotated[
        tuple[Need, ...], Meta(description="Hosts to allow and secrets to set before the request can be sent.")
    ] = ()


class _Words:
    """Placeholder words of letters and digits, and the strings displayed in their place."""

    def __init__(self, steps: "Iterable[Placeholder]") -> None:
        self.secret = f"s{token_hex(8)}"
        self.steps = {placeholder.name: f"v{token_hex(8)}" for placeholder in steps}
        self._texts = {self.secret: MASK} | {word: f"${{{name}}}" for name, word in self.steps.items()}

    def show(self, text: str) -> str:
        for word, replacement in self._texts.items():
            text = text.replace(word, replacement)
        return text


def previewed(
    request: "ToolRequest", args: Mapping[str, Any], context: "HttpContext", step: str = ""
) -> PreviewRequest:
    """Return the request as it would be sent. Raise BadArguments or ToolFailure for an invalid value."""
    words = _Words(request.step_values)
    args = {
        name: file_preview(value) if name in request.files and value is not None else value
        for name, value in args.items()
    }
    filled = request.template.fill({**args, **words.steps}, lambda _: words.secret)
    signed = _signed(request, filled, {**args, **words.steps}, words.secret, context)
    notes, needs = _notes(request, filled, context)

    def shown(what: str, text: str) -> str:
        if len(text := words.show(text)) > MAX_SHOWN:
            notes.append(f"{what} has {len(text):,} characters, of which the first {MAX_SHOWN:,} are shown")
        return text[:MAX_SHOWN]

    headers: dict[str, str] = {}
    for name, value in signed.headers:
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    body: str | None = None
    if signed.body:
        try:
            body = shown("the body", signed.body.decode())
        except UnicodeDecodeError:
            notes.append(f"the body is {len(signed.body):,} bytes that are not text")
    url = shown("the URL", signed.url.text)
    headers = {name: shown(f"the header {name}", value) for name, value in headers.items()}
    if words.steps:
        notes.append("${steps.…} stands for the value of an earlier request")
    return PreviewRequest(
        method=signed.method,
        url=url,
        headers=headers,
        body=body,
        step=step,
        notes=tuple(words.show(note) for note in notes),
        needs=() if words.show(signed.url.authority) != signed.url.authority else tuple(needs),
    )


def _signed(
    request: "ToolRequest", filled: "HttpRequest", args: Mapping[str, Any], secret: str, context: "HttpContext"
) -> "HttpRequest":
    """Add the credentials, masked: a value derived from a placeholder word is masked as a whole."""
    if request.auth is None:
        return filled
    if request.auth.asks_elsewhere:
        return with_header(filled, "Authorization", f"Bearer {MASK}")
    unmasking = context._replace(mask_also=lambda _: None)  # a placeholder word is not a secret
    signed = request.auth.begin(args, lambda _: secret, unmasking).sign(filled)
    if not request.auth.secrets:
        return signed
    headers: list[tuple[str, str]] = []
    for name, value in signed.headers:
        if (name, value) not in filled.headers and secret not in value:
            scheme, space, _ = value.partition(" ")
            value = f"{scheme} {MASK}" if space else MASK
        headers.append((name, value))
    return signed._replace(headers=headers)


def _notes(request: "ToolRequest", filled: "HttpRequest", context: "HttpContext") -> tuple[list[str], list[Need]]:
    """Return the reasons why the request could not be sent, as messages and as needs."""
    notes, needs = list[str](), list[Need]()

    def note(refusal: ToolFailure) -> None:
        notes.append("; ".join([str(refusal), *refusal.hints]))
        needs.extend(refusal.needs)

    try:
        context.hosts.check(filled.url)
    except ToolFailure as refusal:
        note(refusal)
    asks_elsewhere = request.auth is not None and request.auth.asks_elsewhere
    find = context.secret or (lambda _: None)
    for name in sorted(request.secrets):
        try:
            if not asks_elsewhere:
                context.check_secret(name, filled.url)
            if find(name) is None:
                bindings = (binding_for(url) for names, url in request.destinations if name in names and url)
                need = secret_need(name, dict.fromkeys(bindings))
                note(ToolFailure(f"the secret {name} is not set: {need.command}", needs=[need]))
        except ToolFailure as refusal:
            note(refusal)
    if asks_elsewhere:
        notes.append("a token is fetched before the request is sent")
    return notes, needs
