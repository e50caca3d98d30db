"""`httpImpl` and `limits` of a tool as msgspec Structs, with the retries and time limits that follow from them.

It is cheap to import, because listing tools needs only this module. It also builds JSON pointers into a definition.
"""

from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from msgspec import Meta

if TYPE_CHECKING:
    from onetool.http.url import HttpRequest


def below(pointer: str, name: str | int) -> str:
    """Return the pointer to a member of the value at `pointer`."""
    return f"{pointer}/{str(name).replace('~', '~0').replace('/', '~1')}"


# The shape of `httpImpl` and `limits`

Method = Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]
Text = Annotated[str, Meta(min_length=1)]
MAX_URL = 64 * 1024  # characters of a template, before values are filled in
Url = Annotated[Text, Meta(max_length=MAX_URL, extra_json_schema={"pattern": "^[hH][tT][tT][pP][sS]?://"})]
Status = Annotated[int, Meta(ge=100, le=599)]
Milliseconds = Annotated[int, Meta(ge=1, le=600_000)]
MEDIA_TYPE = r"^[A-Za-z0-9!#$&^_.+-]+/[A-Za-z0-9!#$&^_.+-]+(; ?[A-Za-z0-9-]+=[A-Za-z0-9_.-]+)*$(?!\n)"
MediaType = Annotated[str, Meta(pattern=MEDIA_TYPE, max_length=200)]
StepName = Annotated[str, Meta(pattern="^[A-Za-z_][A-Za-z0-9_]*$", max_length=64)]

FROM_TOOL = "OneTool-Call"
"""A header of every request of an HTTP tool and to an MCP server. Some routes of `onetool serve` refuse it."""
TOOL_HEADER = FROM_TOOL.lower().encode()  # as in an ASGI scope


class CamelStruct(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True
):
    """Base class for Structs in user-written files, with camelCase keys. Unknown keys are errors."""


class Bearer(CamelStruct, frozen=True, kw_only=True, tag="bearer", tag_field="type"):
    """`Authorization: Bearer <value>`."""

    value: Text


class Basic(CamelStruct, frozen=True, kw_only=True, tag="basic", tag_field="type"):
    """`Authorization: Basic …`."""

    username: str
    password: str = ""


class ApiKey(CamelStruct, frozen=True, kw_only=True, tag="apiKey", tag_field="type"):
    """An API key in a header, the query or a cookie."""

    name: Text
    value: Text
    place: Literal["header", "query", "cookie"] = msgspec.field(default="header", name="in")


class Hmac(CamelStruct, frozen=True, kw_only=True, tag="hmac", tag_field="type"):
    """A signature over parts of the request, computed with a secret that is not sent.

    `payload` lists the signed parts: {method}, {path} (as sent, with its query), {host}, {timestamp}, {body} and
    {bodySha256} (hex).
    """

    secret: Text
    algorithm: Literal["sha1", "sha256", "sha512"] = "sha256"
    encoding: Literal["hex", "base64"] = "hex"
    payload: Text = "{body}"
    header: Text = "X-Signature"
    prefix: str = ""  # of the header's value, for example `sha256=`
    timestamp_header: Text | None = None  # the header with {timestamp} (seconds since 1970)


class OAuth2(CamelStruct, frozen=True, kw_only=True, tag="oauth2", tag_field="type"):
    """A bearer token fetched from `tokenUrl`, kept until it expires, and fetched again if it is refused.

    With the grant `authorizationCode`, the user first logs in at `authorizationUrl`, with `onetool bundles login`.
    """

    token_url: Text
    client_id: Text
    client_secret: str = ""
    grant: Literal["clientCredentials", "refreshToken", "authorizationCode"] = "clientCredentials"
    refresh_token: str = ""
    scope: str = ""
    client_auth: Literal["basic", "body"] = "basic"
    authorization_url: str = ""
    issuer: str = ""  # the authorization server's issuer identifier, if its answers contain one
    redirect_port: Annotated[int, Meta(ge=1, le=65535)] | None = None  # None: any free port


Auth = Bearer | Basic | ApiKey | Hmac | OAuth2


class Encoding(CamelStruct, frozen=True, kw_only=True):
    """The encoding of a query or form field, in OpenAPI's terms.

    Without a style, a list of plain values repeats the name, and nested values have brackets: `items[0][price]`.
    """

    style: Literal["form", "spaceDelimited", "pipeDelimited", "deepObject"] | None = None
    explode: bool | None = None  # None: OpenAPI's default, false for the delimited styles
    content_type: MediaType | None = None  # of a part of a multipart body; a form field with a JSON type is JSON

    @property
    def separator(self) -> str | None:
        """The separator of a list written as one value; None if each item is a separate value."""
        explode = self.style in (None, "form", "deepObject") if self.explode is None else self.explode
        return None if explode or self.style == "deepObject" else _SEPARATORS.get(self.style or "form")


_SEPARATORS = {"form": ",", "spaceDelimited": " ", "pipeDelimited": "|"}
DEFAULT_ENCODING = Encoding()


class Request(CamelStruct, frozen=True, kw_only=True):
    """The request, with `${name}` for arguments and secrets."""

    url_template: Annotated[Url, Meta(description="With `${name}` for arguments and secrets; on an allowed host.")]
    method: Method = "GET"
    query: Annotated[dict[str, Any], Meta(description="Added to the query of the URL; a list repeats its name.")] = {}
    query_encoding: Annotated[dict[str, Encoding], Meta(description="Encodings of lists and objects.")] = {}
    headers: Annotated[dict[str, str], Meta(description="Values can contain `${name}`.")] = {}
    body: Annotated[Any, Meta(description="JSON or text; `${name}` alone keeps its type.")] = None
    multipart: Annotated[
        dict[str, Any] | None,
        Meta(description='Fields; a file is `{"file": "${name}"}`. Beside `body`: sent if a file is given.'),
    ] = None
    body_file: Annotated[Text | None, Meta(description="`${name}`: the body is the file it names.")] = None
    body_encoding: Annotated[dict[str, Encoding], Meta(description="Encodings of form or `multipart` fields.")] = {}
    auth: Auth | None = None
    timeout_ms: Annotated[Milliseconds, Meta(description="The limit of each attempt.")] = 10_000
    retries: Annotated[int, Meta(ge=0, le=10, description="Retries after a network error, 429 or 5xx.")] = 0
    idempotent: Annotated[bool | None, Meta(description="Whether it may be retried. Default: by method.")] = None
    follow_redirects: bool = False

    def __post_init__(self) -> None:
        if self.body_file is not None and (self.body is not None or self.multipart is not None):
            raise ValueError("use `bodyFile` without `body` and `multipart`")


ErrorMode = Annotated[
    Literal["fail", "empty", "return"], Meta(description="For another status: a failure, null, or `{status, body}`.")
]


class ResponseOptions(CamelStruct, frozen=True, kw_only=True):
    """The conversion of the response to a value."""

    success_codes: Annotated[tuple[Status, ...], Meta(description="Default: all of 200 to 299.")] = ()
    encoding: Annotated[
        Literal["json", "text", "binary", "sse"] | None, Meta(description="Default: by the response's type and body.")
    ] = None
    selector: Annotated[str, Meta(description="JMESPath: the part of the response to return.")] = ""
    error_mode: ErrorMode = "fail"


class RequestStep(CamelStruct, frozen=True, kw_only=True):
    """One of several requests. Later requests use its value as `${steps.NAME.…}`."""

    name: Annotated[StepName, Meta(description="Later requests use its value as `${steps.NAME.…}`.")]
    request: Request
    response: ResponseOptions = ResponseOptions()
    when: Annotated[str, Meta(description="No longer supported: write a script.")] = ""

    def __post_init__(self) -> None:
        if self.when:
            raise ValueError("`when` is no longer supported: write a script that calls a tool for each request")


Steps = Annotated[
    tuple[RequestStep, ...], Meta(min_length=1, max_length=20, description="The last one returns the tool's value.")
]


class HttpImpl(CamelStruct, frozen=True, kw_only=True):
    """One request, as `request` and `response`, or several, as `requests`."""

    request: Request | None = None
    response: ResponseOptions | None = None
    requests: Steps | None = None

    def __post_init__(self) -> None:
        if self.request is None and self.requests is None:
            raise ValueError("it needs `request`, or `requests` for several")
        if self.requests is not None and (self.request is not None or self.response is not None):
            raise ValueError("`requests` can't be combined with `request` or `response`: each of them has its own")

    @property
    def steps(self) -> tuple[RequestStep, ...]:
        """All requests in order. A single request has no name."""
        if self.request is None:
            return self.requests or ()
        return (RequestStep(name="", request=self.request, response=self.response or ResponseOptions()),)


MAX_REQUEST_BYTES = 64 * 1024**2
DEFAULT_REQUEST_BYTES = 1024**2


class ToolLimits(CamelStruct, frozen=True, kw_only=True):
    """Limits of a tool. The last three apply to HTTP tools only."""

    max_calls_per_minute: Annotated[int, Meta(ge=1, description="Further calls are refused with 429.")] | None = None
    max_request_bytes: Annotated[int, Meta(ge=1, le=MAX_REQUEST_BYTES)] = DEFAULT_REQUEST_BYTES
    max_response_bytes: Annotated[int, Meta(ge=1, le=256 * 1024**2)] = 4 * 1024**2
    max_retries: Annotated[int, Meta(ge=0, le=10)] | None = None


# Numbers of attempts and timeouts

IDEMPOTENT = frozenset(("GET", "HEAD", "PUT", "DELETE", "OPTIONS"))
FIRST_PAUSE = 0.25  # maximum seconds before the second attempt; doubled for each further one …
MAX_PAUSE = 8.0  # … up to this
TOKEN_SECONDS = 15.0  # for fetching a token
MAX_TOTAL = 900.0  # seconds for all attempts, unless a single one may take longer
OVERHEAD = 1.0  # seconds for everything but sending: filling in, selecting


def is_idempotent(request: "Request | HttpRequest") -> bool:
    """Return whether sending the request twice does no harm, according to its tool or its method."""
    return request.method in IDEMPOTENT if request.idempotent is None else request.idempotent


def max_tries(request: Request, limits: ToolLimits) -> int:
    retries = request.retries if limits.max_retries is None else min(request.retries, limits.max_retries)
    return 1 + (retries if is_idempotent(request) else 0)


def longest_pause(number: int) -> float:
    """Return the maximum pause in seconds after attempt `number`, unless the server asks for more."""
    return min(FIRST_PAUSE * 2 ** (number - 1), MAX_PAUSE)


def sending_seconds(request: Request, limits: ToolLimits) -> float:
    """Return the seconds for all attempts at one request and the pauses between them."""
    number, seconds = max_tries(request, limits), request.timeout_ms / 1000
    token = TOKEN_SECONDS if isinstance(request.auth, OAuth2) else 0
    total = seconds * number + sum(map(longest_pause, range(1, number))) + token
    return min(total, max(MAX_TOTAL, seconds))


def all_sending_seconds(impl: HttpImpl, limits: ToolLimits) -> float:
    """Return the seconds for all requests of a call in sequence: they share one deadline."""
    each = [sending_seconds(step.request, limits) for step in impl.steps]
    return min(sum(each), max(MAX_TOTAL, *each))


def total_seconds(impl: HttpImpl, limits: ToolLimits) -> float:
    return all_sending_seconds(impl, limits) + OVERHEAD
