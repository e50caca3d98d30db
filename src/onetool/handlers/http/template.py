"""A tool's request as its author wrote it, with `${name}` in it -> the request of one call. Sends nothing.

All of it is taken apart once, when the tool is defined: where a value may stand, and how it is escaped there, is
settled before anybody has given one. Scheme and port are literal, and so is the host, but for labels that are
placeholders (`https://${region}.example.com`); one that is all of a host (`https://${host}/x`) may be several labels.
Whether the host may be called is for `hosts` to say, of the URL that a call has made.
"""

import re
from collections.abc import Mapping
from typing import Any

from onetool.handlers.http.fields import Fields
from onetool.handlers.http.impl import Request
from onetool.handlers.http.outgoing import Outgoing
from onetool.handlers.http.path import Path
from onetool.handlers.http.payload import payload
from onetool.handlers.http.placeholders import (
    MARK,
    Hole,
    Lookup,
    TemplateError,
    Text,
    Values,
    argument_names,
    gather,
    properties,
    read,
    refused_at,
    unmarked,
)
from onetool.handlers.http.query import Pair, Pairs, named_pairs, written_pairs
from onetool.handlers.http.refusal import Refusal
from onetool.handlers.http.url import Url, as_target, normal_host, read_authority, split

__all__ = ["Template", "TemplateError"]

_URL = "/request/urlTemplate"
_LABEL = re.compile(r"[A-Za-z0-9-]{1,63}")
_LABELS = re.compile(r"[A-Za-z0-9.-]{1,253}")


class Template:
    """What a request is made of. TemplateError when it can't ever work."""

    def __init__(self, request: Request, arg_schema: Any) -> None:
        arguments = argument_names(arg_schema)
        self.method = request.method
        self._idempotent = request.idempotent
        pairs = self._read_url(read(request.url_template, arguments, _URL))
        pairs += named_pairs(request.query, arguments, "/request/query")
        self._query = Pairs(pairs)
        self._fields = Fields(request.headers, arguments)
        schemas = dict.fromkeys(arguments) | dict(properties(arg_schema))
        self._payload = payload(request.body, self._fields.content_type, schemas)
        holes = [hole for part in (*self._places, *pairs, self._fields, self._payload) if part for hole in part.holes]
        self._holes = tuple(dict.fromkeys(holes))
        self.secrets = frozenset(hole.name for hole in self._holes if hole.is_secret)
        self.secrets_in_host = frozenset(hole.name for hole in self._places[0].holes if hole.is_secret)

    def fill(self, args: Mapping[str, Any], secret: Lookup) -> Outgoing:
        """The request of one call; BadArguments or ToolFailure when a value does not fit, or a secret is not set."""
        values = gather(self._holes, args, secret)
        query = self._query.fill(values)
        path = self._path.fill(values)
        host = self._host if isinstance(self._host, str) else _host(self._host, values)
        url = Url(self._scheme, host, self._port, f"{path}?{query}" if query else path)
        headers = self._fields.fill(values)
        body = None if self._payload is None else self._payload.fill(values)
        if body is not None and self._fields.content_type is None and self._payload is not None:
            headers.append(("Content-Type", self._payload.content_type))
        return Outgoing(self.method, url, headers, body or b"", self._idempotent)

    @property
    def fixed_url(self) -> Url | None:
        """Where every request goes to, as far as the host; None where that depends on the call."""
        return Url(self._scheme, self._host, self._port, "/") if isinstance(self._host, str) else None

    def _read_url(self, text: Text) -> list[Pair]:
        """Take the URL apart. Gives the pairs of its query."""
        marked, holes = text.marked, iter(text.holes)
        with refused_at(_URL):
            self._scheme, authority, rest = split(marked)
            if (authority + rest).count(MARK) < len(text.holes):
                raise Refusal("a placeholder after `#` is never sent")
            plain, self._port = read_authority(authority.replace(MARK, "x"), self._scheme)
            host = unmarked(authority.rpartition(":")[0] if _has_port(authority) else authority, holes)
            self._host = host if host.holes else plain
            path, _, query = rest.partition("?")
            segments = [unmarked(part, holes) for part in as_target(path).split("/")]
            self._path = Path(segments)
            self._places = (host, *segments)
            return written_pairs(query, holes)


def _has_port(authority: str) -> bool:
    return ":" in authority.rpartition("]")[2]


def _host(text: Text, values: Values) -> str:
    """The host of one call: its labels can only be labels, and it is read like one that was written."""
    fits = _LABELS if text.alone else _LABEL

    def fit(hole: Hole, value: str) -> str:
        if not fits.fullmatch(value):
            raise hole.bad("can't be part of a host: that is letters, digits and dashes")
        return value

    filled = text.fill_whole(values, fit, "the URL's host")
    try:
        return normal_host(filled)
    except Refusal:
        raise text.holes[0].bad("makes no host that could be called") from None
