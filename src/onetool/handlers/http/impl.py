"""What an HTTP tool says of itself: `httpImpl` of a bundle's tool, and its limits. Only shapes."""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

Method = Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]
Text = Annotated[str, Meta(min_length=1)]
Status = Annotated[int, Meta(ge=100, le=599)]
Milliseconds = Annotated[int, Meta(ge=1, le=600_000)]


class Shape(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """Part of a file that people write: keys in camelCase, and a key that nobody knows is a mistake."""


class Bearer(Shape, frozen=True, kw_only=True, tag="bearer", tag_field="type"):
    """`Authorization: Bearer <value>`."""

    value: Text


class Basic(Shape, frozen=True, kw_only=True, tag="basic", tag_field="type"):
    """`Authorization: Basic …`."""

    username: str
    password: str = ""


class ApiKey(Shape, frozen=True, kw_only=True, tag="apiKey", tag_field="type"):
    """A key under a name of its own."""

    name: Text
    value: Text
    place: Literal["header", "query", "cookie"] = msgspec.field(default="header", name="in")


class Hmac(Shape, frozen=True, kw_only=True, tag="hmac", tag_field="type"):
    """A signature over parts of the request, made of a secret that is not sent.

    `payload` names what is signed, with {method}, {path} (as sent, with its query), {host}, {timestamp}, {body} and
    {bodySha256} (hex).
    """

    secret: Text
    algorithm: Literal["sha1", "sha256", "sha512"] = "sha256"
    encoding: Literal["hex", "base64"] = "hex"
    payload: Text = "{body}"
    header: Text = "X-Signature"
    prefix: str = ""  # of the header's value: `sha256=`
    timestamp_header: Text | None = None  # where {timestamp} (seconds since 1970) is sent


class OAuth2(Shape, frozen=True, kw_only=True, tag="oauth2", tag_field="type"):
    """A bearer token that is fetched from `tokenUrl`, kept until it ends, and fetched anew when it is refused."""

    token_url: Text
    client_id: Text
    client_secret: str = ""
    grant: Literal["clientCredentials", "refreshToken"] = "clientCredentials"
    refresh_token: str = ""
    scope: str = ""
    client_auth: Literal["basic", "body"] = "basic"


Auth = Bearer | Basic | ApiKey | Hmac | OAuth2


class Request(Shape, frozen=True, kw_only=True):
    """The request, with `${name}` for arguments and secrets."""

    url_template: Text
    method: Method = "GET"
    query: dict[str, Any] = {}
    headers: dict[str, str] = {}
    body: Any = None  # JSON with placeholders, or a text
    auth: Auth | None = None
    timeout_ms: Milliseconds = 10_000  # for each try
    retries: Annotated[int, Meta(ge=0, le=10)] = 0
    idempotent: bool | None = None  # may be tried again, whatever its method says
    follow_redirects: bool = False


class Response(Shape, frozen=True, kw_only=True):
    """What becomes of the answer."""

    success_codes: tuple[Status, ...] = ()  # none: all of 200 to 299
    encoding: Literal["json", "text", "binary", "sse"] = "json"
    selector: str = ""  # JMESPath
    error_mode: Literal["fail", "empty", "return"] = "fail"  # "empty": the value null; "return": {status, body}


class HttpImpl(Shape, frozen=True, kw_only=True):
    request: Request
    response: Response = Response()


class Limits(Shape, frozen=True, kw_only=True):
    """What a tool may take. Of the last three only HTTP tools have a use."""

    max_calls_per_minute: Annotated[int, Meta(ge=1)] | None = None
    max_request_bytes: Annotated[int, Meta(ge=1, le=64 * 1024**2)] = 1024**2
    max_response_bytes: Annotated[int, Meta(ge=1, le=256 * 1024**2)] = 4 * 1024**2
    max_retries: Annotated[int, Meta(ge=0, le=10)] | None = None
