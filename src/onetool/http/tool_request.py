"""`ToolRequest` is one request of an HTTP tool: it fills the template, signs, sends, and reads the response.

`previewed` shows to somebody what would be sent. Nothing is sent then, and no secret is read: secrets, and values of
earlier steps, are filled in as words that no escaping changes, and those are replaced by what a reader is to see.
"""

import time
from collections.abc import Iterable, Iterator, Mapping
from secrets import token_hex
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta

from onetool.core.errors import ToolFailure
from onetool.core.redaction import MASK
from onetool.http.allowed_hosts import binding_command
from onetool.http.auth import Authenticator, Destination, Signer, authenticator_for, with_header
from onetool.http.client import HttpContext
from onetool.http.definition import OAuth2, RequestStep, ToolLimits, sending_seconds
from onetool.http.errors import Redact, WireError, with_message
from onetool.http.files import file_preview
from onetool.http.placeholders import KnownNames, Lookup, Placeholder, StepNames
from onetool.http.response import ResponseReader, Tell
from onetool.http.sending import Retries, Sender
from onetool.http.template import RequestTemplate

if TYPE_CHECKING:
    from onetool.http.definition import Auth
    from onetool.http.url import HttpRequest, Url

SLOW = "timeoutMs in the tool's httpImpl.request sets how long each try may take"
ACCEPTS = {"json": "application/json, */*;q=0.5", "sse": "text/event-stream"}
MOST_BODY = 64 * 1024  # characters that a preview shows


class ToolRequest:
    """Made once per tool. Making one raises TemplateError, with a pointer, for what can't work.

    `args` of its methods are the arguments of the call, and values of the steps before under their placeholders' names.
    """

    def __init__(
        self,
        step: RequestStep,
        arg_schema: Mapping[str, Any],
        limits: ToolLimits,
        steps: StepNames | None = None,
        bundle: str | None = None,
    ) -> None:
        """`bundle` is the id of the bundle that the tool is in: a person's login is for one bundle."""
        request, response = step.request, step.response
        if not any(name.lower() == "accept" for name in request.headers):
            accept = ACCEPTS.get(response.encoding, "*/*")
            request = msgspec.structs.replace(request, headers={**request.headers, "Accept": accept})
        self.template = RequestTemplate(request, arg_schema, steps, limits.max_request_bytes)
        self.auth = _authenticator(request.auth, KnownNames(arg_schema, steps), arg_schema, self.fixed_url, bundle)
        self._reader = ResponseReader(response, time.time)
        self._streams = response.encoding == "sse"
        retries = Retries(request, limits)
        sizes = limits.max_response_bytes, limits.max_request_bytes
        self._sending = Sender(retries, request.timeout_ms / 1000, *sizes, request.follow_redirects, self._streams)
        self._seconds = sending_seconds(request, limits)
        self.secrets, self.step_values = self.template.secrets, self.template.step_values
        self.files, self.texts = self.template.files, self.template.texts  # arguments: files, or parts of texts
        self.credentials = self.template.credentials  # values of steps that have to be masked
        if self.auth is not None:
            self.texts |= {placeholder.name for placeholder in self.auth.placeholders}
            self.secrets |= self.auth.secrets
            self.step_values |= self.auth.step_values
            self.credentials |= self.auth.step_values

    @property
    def fixed_url(self) -> "Url | None":
        """Where every request goes to, as far as the host; None where that depends on the call."""
        return self.template.fixed_url

    @property
    def destinations(self) -> Iterator[Destination]:
        """Where its secrets go."""
        yield self.template.secrets, self.fixed_url
        if self.auth is not None:
            yield from self.auth.destinations(self.fixed_url)

    def prepared(
        self, args: Mapping[str, Any], secret: Lookup, context: HttpContext
    ) -> "tuple[HttpRequest, Signer | None]":
        """The request of one call, and what signs it. Nothing is sent."""
        outgoing = self.template.fill(args, secret)
        asks_elsewhere = self.auth is not None and self.auth.asks_elsewhere
        for name in self.template.secrets if asks_elsewhere else self.secrets:
            context.check_secret(name, outgoing.url)
        for name in self.template.secrets_in_host:  # a host is written in lower case: that form is a secret, too
            context.mask_also((secret(name) or "").lower())
        if self.auth is None:
            return outgoing, None
        return outgoing, self.auth.begin(args, secret, context)

    async def send(
        self,
        args: Mapping[str, Any],
        secret: Lookup,
        context: HttpContext,
        tell: Tell | None,
        most_seconds: float | None = None,
        clean: Redact | None = None,
    ) -> Any:
        """The value. `tell` is told of events as they come; `clean` masks data, where `context.redact` masks more."""
        outgoing, signer = self.prepared(args, secret, context)
        place = outgoing.url.authority
        seconds = self._seconds if most_seconds is None else min(self._seconds, most_seconds)
        try:
            answer = await self._sending.send(outgoing, signer, context, seconds)
            if self._streams:
                return await self._reader.events(answer, place, tell, context.redact)
            return await self._reader.value(answer, place, context.store_result, context.redact, clean)
        except WireError as failure:
            raise failure if failure.reason != "timeout" else with_message(failure, str(failure), SLOW) from None


def _authenticator(
    auth: "Auth | None", arguments: KnownNames, arg_schema: Mapping[str, Any], target: "Url | None", bundle: str | None
) -> Authenticator | None:
    if isinstance(auth, OAuth2) and auth.grant == "authorizationCode":
        from onetool.http.oauth_login import LoginAuthenticator

        return LoginAuthenticator(auth, arguments, target, bundle)
    if isinstance(auth, OAuth2):
        from onetool.http.oauth import OAuthAuthenticator  # only for tools that use it

        return OAuthAuthenticator(auth, arguments, arg_schema)
    return authenticator_for(auth, arguments)


class PreviewRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One request as it would be sent, without secrets."""

    method: str
    url: str
    headers: dict[str, str]
    body: Annotated[str | None, Meta(description="As text; null where there is none, or where it is no text.")]
    step: Annotated[str, Meta(description="Its name, where a tool sends several.")] = ""
    notes: Annotated[tuple[str, ...], Meta(description="What is not known yet, or would keep it from being sent.")] = ()


class _Words:
    """Stand-ins: each a word of letters and digits, and what a reader sees in its place."""

    def __init__(self, steps: Iterable[Placeholder]) -> None:
        self.secret = f"s{token_hex(8)}"
        self.steps = {hole.name: f"v{token_hex(8)}" for hole in steps}
        self._shown = {self.secret: MASK} | {word: f"${{{name}}}" for name, word in self.steps.items()}

    def show(self, text: str) -> str:
        for word, shown in self._shown.items():
            text = text.replace(word, shown)
        return text


def previewed(
    request: ToolRequest, args: Mapping[str, Any], outside: HttpContext, step: str = "", when: str | None = None
) -> PreviewRequest:
    """BadArguments or ToolFailure when a value does not fit."""
    words = _Words(request.step_values)
    args = {
        name: file_preview(value) if name in request.files and value is not None else value
        for name, value in args.items()
    }
    filled = request.template.fill({**args, **words.steps}, lambda _: words.secret)
    signed = _signed(request, filled, {**args, **words.steps}, words.secret, outside)
    body, body_notes = _body(signed.body, words)
    headers: dict[str, str] = {}
    for name, value in signed.headers:
        headers[name] = f"{headers[name]}, {words.show(value)}" if name in headers else words.show(value)
    notes = [*_notes(request, filled, outside), *body_notes]
    if words.steps:
        notes.append("${steps.…} stands for what an earlier request gives")
    if when:
        notes.append(f"sent only if this holds: {when}")
    return PreviewRequest(
        method=signed.method,
        url=words.show(signed.url.text),
        headers=headers,
        body=body,
        step=step,
        notes=tuple(words.show(note) for note in notes),
    )


def _signed(
    request: ToolRequest, filled: "HttpRequest", args: Mapping[str, Any], secret: str, outside: HttpContext
) -> "HttpRequest":
    """With its credentials, masked: what is derived of a stand-in is masked as a whole."""
    if request.auth is None:
        return filled
    if request.auth.asks_elsewhere:
        return with_header(filled, "Authorization", f"Bearer {MASK}")
    unmasking = outside._replace(mask_also=lambda _: None)  # a stand-in is no secret
    signed = request.auth.begin(args, lambda _: secret, unmasking).sign(filled)
    if not request.auth.secrets:
        return signed
    headers = [
        (name, value if (name, value) in filled.headers else _masked(value, secret)) for name, value in signed.headers
    ]
    return signed._replace(headers=headers)


def _masked(value: str, secret: str) -> str:
    if secret in value:
        return value
    scheme, space, _ = value.partition(" ")
    return f"{scheme} {MASK}" if space else MASK


def _body(data: bytes, words: _Words) -> tuple[str | None, list[str]]:
    if not data:
        return None, []
    try:
        text = words.show(data.decode())
    except UnicodeDecodeError:
        return None, [f"the body is {len(data):,} bytes that are no text"]
    if len(text) <= MOST_BODY:
        return text, []
    return text[:MOST_BODY], [f"the body has {len(text):,} characters, of which the first {MOST_BODY:,} are shown"]


def _notes(request: ToolRequest, filled: "HttpRequest", outside: HttpContext) -> list[str]:
    """What would keep it from being sent."""
    notes: list[str] = []
    try:
        outside.hosts.check(filled.url)
    except ToolFailure as refusal:
        notes.append("; ".join([str(refusal), *refusal.hints]))
    asks_elsewhere = request.auth is not None and request.auth.asks_elsewhere
    find = outside.secret or (lambda _: None)
    for name in sorted(request.secrets):
        try:
            if not asks_elsewhere:
                outside.check_secret(name, filled.url)
            if find(name) is None:
                notes.append(f"the secret {name} is not set: {binding_command(name)}")
        except ToolFailure as refusal:
            notes.append("; ".join([str(refusal), *refusal.hints]))
    if asks_elsewhere:
        notes.append("the token is asked for before it is sent")
    return notes
