"""A request, ready to be sent once its host has been checked. Apart from templates: not everybody who sends has one."""

from typing import NamedTuple

from onetool.handlers.http.url import Url


class Outgoing(NamedTuple):
    method: str
    url: Url
    headers: list[tuple[str, str]]
    body: bytes
    idempotent: bool | None = None  # may be sent twice; None: its method says so
