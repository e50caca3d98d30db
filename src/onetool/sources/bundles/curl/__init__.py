"""Convert a curl command into an HTTP tool that sends the same request, with arguments: `from_curl`. Nothing is run.

These become arguments: placeholders (`{id}`, `:id`, `<id>`, `$CITY`), values of the query or of a form, and members of
a JSON body. Values have the command's own value as default, so that a call without arguments sends the same request.
The method, the headers, and members of a body that contain a secret are fixed. Credentials become secrets, whose values
are in `secrets`.
"""

import re
from base64 import b64decode
from contextlib import suppress
from typing import Any, NamedTuple
from urllib.parse import unquote

from onetool.http.definition import Method
from onetool.http.errors import RequestRefusedError
from onetool.http.files import FILE_TIMEOUT_MS, MAX_FILE_BYTES
from onetool.http.url import parse_url
from onetool.sources.bundles.curl.arguments import (
    ArgumentCollector,
    CommandPairs,
    CommandSecrets,
    body_of,
    is_credential,
    looks_random,
    multipart_of,
    shell_text,
    word_for,
)
from onetool.sources.bundles.curl.command import BEGIN, Command, read_command, words
from onetool.sources.bundles.errors import InvalidError
from onetool.sources.bundles.import_names import is_header_name, literal, path_slug

_METHODS = Method.__args__
_URL = re.compile(r"(?i)(https?)://(?:([^/?#@]*)@)?([^/?#@]+)([^?#]*)(?:\?([^#]*))?(?:#.*)?", re.DOTALL)
_IN_PATH = re.compile(r"\{([^{}/,]{1,60})\}|<([^<>/]{1,60})>|%7B([^%/,]{1,60})%7D|(?<=/):([A-Za-z_][A-Za-z0-9_]{0,59})")
# Headers that browsers add to every request, or that belong to the client.
_NOISE = re.compile(
    r"(?i)sec-.*|:.*|host|content-length|connection|keep-alive|accept-encoding|priority|upgrade-insecure-requests|dnt|te"
    r"|pragma|upgrade|transfer-encoding|expect|proxy-.*|if-none-match|if-modified-since|trailer|http2-settings"
)


class FromCurl(NamedTuple):
    slug: str  # a suggestion
    tool: dict[str, Any]  # as the body of a PUT
    hosts: list[str]  # to be allowed in `allowedHosts`
    secrets: dict[str, str | None]  # None if the command has no value for it
    notes: list[str]  # on omitted and changed parts


def from_curl(command: str) -> FromCurl:
    """Convert a curl command. Raises InvalidError for unsupported parts. The tool is checked when it is stored."""
    parsed, variables = read_command(words(command))
    return _Converter(parsed, variables).convert()


class _Converter:
    def __init__(self, command: Command, variables: dict[str, str]) -> None:
        self._command = command
        self._notes = command.notes
        url = command.urls[0].strip()
        if command.upload and url.endswith("/"):
            self._notes.append("curl adds the file's name to an address that ends with /; the tool doesn't")
        scheme, user, self._host, self._path, query = self._split(url)
        self._user = command.user or unquote(user)
        self._query_text = query
        self._secrets = CommandSecrets(self._host, variables)
        self._arguments = ArgumentCollector(self._secrets)
        self._base = f"{scheme}://{self._host}"
        self._auth: dict[str, Any] | None = None
        self._headers: dict[str, str] = {}

    def convert(self) -> FromCurl:
        path, plain_path = self._read_path()
        if self._command.bearer:
            self._auth = {"type": "bearer", "value": self._secrets.take(self._command.bearer, "TOKEN")}
        elif self._user:
            self._basic(self._user)
        for name, value in self._command.headers:
            if value:  # `Name:` tells curl not to send the header
                self._read_header(name, value)
        method = self._method()
        query, body = self._read_data()
        request: dict[str, Any] = {"method": method, "urlTemplate": self._base + path}
        request |= {"query": query} if query else {}
        request |= {"headers": self._headers} if self._headers else {}
        request |= body
        request |= {"auth": self._auth} if self._auth else {}
        request |= {"followRedirects": True} if self._command.follows else {}
        if timeout_ms := min(int(self._command.seconds * 1000), 600_000):
            request["timeoutMs"] = timeout_ms
        elif self._command.sends_files:
            request["timeoutMs"] = FILE_TIMEOUT_MS
        if retries := min(int(self._command.retries), 10):
            request["retries"] = retries
        slug = path_slug(method.lower(), plain_path)
        tool = {
            "type": "http",
            "displayName": slug.replace("-", " ").capitalize(),
            "description": f"{method} {plain_path or '/'} of {self._host}",
            "argSchema": self._arguments.schema(),
            "httpImpl": {"request": request, "response": self._response(body.get("body"))},
        }
        if self._command.sends_files:
            tool["limits"] = {"maxRequestBytes": MAX_FILE_BYTES}
        return FromCurl(slug, tool, [self._host], self._secrets.found, self._notes)

    # URL

    def _split(self, url: str) -> tuple[str, str, str, str, str]:
        if not re.match(r"(?i)[a-z][a-z0-9+.-]*://", url):
            is_local = re.match(r"(?i)(localhost|127\.|0\.0\.0\.0|\[)", url)
            url = f"{'http' if is_local else 'https'}://{url}"
            if not is_local:
                self._notes.append("the URL has no scheme; https:// is used")
        found = _URL.fullmatch(url)
        if found is None:
            raise InvalidError(
                f"{shell_text(url)[:100]!r} is not a URL that can be called: it has to be http:// or https://"
            )
        if BEGIN in found[3] or "{" in found[3] or "<" in found[3]:
            raise InvalidError("the URL's host is a variable; write the host itself: it has to be allowed by its name")
        try:
            host = parse_url(f"{found[1]}://{found[3]}/").authority
        except RequestRefusedError as refusal:
            raise InvalidError(f"{found[3][:100]!r}: {refusal}") from None
        return found[1].lower(), found[2] or "", host, found[4], found[5] or ""

    def _read_path(self) -> tuple[str, str]:
        """Return the path as a template and as readable text."""
        if re.search(r"\{[^{}]*,[^{}]*\}|\[\d+-\d+", self._path):
            raise InvalidError("the URL describes several URLs ({a,b} or [1-9]): a tool has one")
        segments = [self._segment(segment) for segment in self._path.split("/")]
        template = "/".join(template for template, _ in segments)
        if not re.fullmatch(r"[^\s\\\x00-\x1f]*", template):
            raise InvalidError("the URL has a space or a control character in its path; write %20 for a space")
        return template, "/".join(plain for _, plain in segments)

    def _segment(self, segment: str) -> tuple[str, str]:
        if BEGIN not in segment and looks_random(segment):
            kept = "bot" if re.match(r"bot\d+:", segment) else ""
            secret = self._secrets.take(segment.removeprefix(kept), "TOKEN")
            self._notes.append("a part of the path looks like a secret, and becomes one")
            return kept + secret, f"{kept}{{{secret[2:-1]}}}"
        placeholders: list[str] = []

        def mark(found: re.Match[str]) -> str:
            name = next(part for part in found.groups() if part)
            placeholders.append(self._arguments.placeholder(name, required=True))
            return f"\ue002{len(placeholders) - 1}\ue003"

        marked = _IN_PATH.sub(mark, f"/{segment}")[1:]
        template = self._arguments.template(marked, required=True)
        template = re.sub("\ue002(\\d+)\ue003", lambda found: placeholders[int(found[1])], template)
        return template, re.sub(r"\$\{([^{}]*)\}", r"{\1}", template)

    # Authentication

    def _basic(self, text: str) -> None:
        user, colon, password = text.partition(":")
        if colon and password:
            auth = {
                "username": self._secrets.take(user, "USERNAME"),
                "password": self._secrets.take(password, "PASSWORD"),
            }
        else:  # some APIs expect a key instead of a user
            auth = {"username": self._secrets.take(user, "API_KEY")}
            if not colon:
                self._notes.append("-u has no password; an empty password is used")
        self._auth = {"type": "basic", **auth}

    def _read_header(self, name: str, value: str) -> None:
        if _NOISE.fullmatch(name):
            return
        if not is_header_name(name):
            raise InvalidError(f"-H {shell_text(name)[:60]!r}: no header can have this name")
        if name.lower() == "authorization":
            self._authorization(value)
        elif name.lower() == "cookie":
            self._headers["Cookie"] = self._secrets.take(value, "COOKIE")
        elif is_credential(name, value):
            secret = self._secrets.take(value, word_for(name))
            if self._auth is None:
                self._auth = {"type": "apiKey", "name": name, "value": secret, "in": "header"}
            else:
                self._headers[name] = secret
        elif name.lower() in ("content-type", "accept"):
            self._headers[name] = literal(shell_text(value))
        else:
            self._headers[name] = self._arguments.template(value, required=False)

    def _authorization(self, value: str) -> None:
        scheme, _, rest = value.partition(" ")
        rest = rest.strip()
        if scheme.lower() == "bearer" and rest:
            self._auth = {"type": "bearer", "value": self._secrets.take(rest, "TOKEN")}
            return
        login = ""  # stays empty for a variable, or a malformed header
        if scheme.lower() == "basic":
            with suppress(ValueError):
                login = b64decode(rest, validate=True).decode()
        if ":" in login and login.isprintable():
            self._basic(login)
        elif scheme.lower().startswith("aws4-"):
            raise InvalidError(
                "the Authorization header is a signature for this one request (AWS), which a tool can't make"
            )
        elif rest and BEGIN not in scheme and re.fullmatch(r"[A-Za-z][A-Za-z0-9-]*", scheme):
            self._headers["Authorization"] = f"{scheme} {self._secrets.take(rest, 'TOKEN')}"
        else:
            self._headers["Authorization"] = self._secrets.take(value, "TOKEN")

    # Method and body

    def _method(self) -> str:
        command = self._command
        sends = not command.is_get and (command.data or command.fields or command.file)
        implied = "HEAD" if command.is_head else "PUT" if command.upload else "POST" if sends else "GET"
        method = command.method or implied
        if method not in _METHODS:
            raise InvalidError(f"-X {shell_text(method)[:20]}: a tool can send {', '.join(_METHODS)}")
        return method

    def _read_data(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the query, and the members of the request that are about its body."""
        pairs = CommandPairs(self._arguments, self._secrets)
        pairs.add_query(self._query_text)
        for text in self._command.query:
            pairs.add_query(text.removeprefix("+"))
        data = [part for part in self._command.data if part[0] != "file"]
        if self._command.is_get:
            for kind, text in data:
                (pairs.add if kind == "pair" else pairs.add_query)(text)
            data = []
        query = pairs.template()
        if bool(data) + bool(self._command.fields) + bool(self._command.file) > 1:
            raise InvalidError("the command has several bodies: use one of -d, -F, -T and --data-binary @FILE")
        if self._command.file:
            return query, {"bodyFile": self._arguments.file("file", self._command.file)}
        if self._command.fields:
            for name in [name for name in self._headers if name.lower() == "content-type"]:
                del self._headers[name]  # set later with the boundary
            fields, encoding = multipart_of(self._command.fields, self._arguments, self._secrets)
            return query, {"multipart": fields} | ({"bodyEncoding": encoding} if encoding else {})
        if not data:
            return query, {}
        body, content_type = body_of(data, self._content_type(), self._arguments, self._secrets, self._notes)
        if content_type and self._content_type() is None:
            self._headers["Content-Type"] = content_type
        return query, {} if body is None else {"body": body}

    def _content_type(self) -> str | None:
        return next((value for name, value in self._headers.items() if name.lower() == "content-type"), None)

    def _response(self, body: Any) -> dict[str, Any]:
        accept = next((value.lower() for name, value in self._headers.items() if name.lower() == "accept"), "")
        streams = self._arguments.defaults().get("stream") is True and isinstance(body, dict)
        if "event-stream" in accept or streams:
            return {"encoding": "sse"}
        if accept.startswith(
            ("image/", "audio/", "video/", "application/octet-stream", "application/pdf", "application/zip")
        ):
            return {"encoding": "binary"}
        if "json" in accept:
            return {"encoding": "json"}
        return {"encoding": "text"} if accept.startswith(("text/", "application/xml")) else {}


__all__ = ["FromCurl", "from_curl"]
