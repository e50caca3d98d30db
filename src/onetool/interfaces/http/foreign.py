"""Pages of other origins: what a browser says of them beside Origin, and how they are told that they get nothing.

A browser sends no Origin with a picture, a script, a frame or a link. Sec-Fetch-Site it sends with everything, and no
page can change that.
"""

import re

from onetool.interfaces.asgi import Refused, Scope

LONGEST = 100  # characters of a header that an answer repeats
OURS = (None, b"same-origin", b"none")  # no browser, a page of this server, somebody who typed the address
_NAVIGATION = ((b"sec-fetch-mode", b"navigate"), (b"sec-fetch-dest", b"document"))
_ORIGIN = re.compile(r"([a-zA-Z][\w+.-]*://(?:\[[0-9a-fA-F:.]+\]|[\w.-]+)(?::[0-9]{1,5})?)(?:[/?#]|$)", re.ASCII)


def check_fetch_site(said: bytes | None, origin: bytes | None, scope: Scope, is_page: bool) -> None:
    """`said` is Sec-Fetch-Site. To where `is_page` says so, people may follow a link from anywhere."""
    if said in OURS or (is_page and _is_navigation(scope)):
        return
    raise foreign(next(iter(_sent(scope, b"referer")), b"") if origin is None else origin)


def foreign(page: bytes) -> Refused:
    """The refusal; `page` is an origin, or an address that begins with one, as far as it is known."""
    text = page[:LONGEST].decode("latin-1")
    found = _ORIGIN.match(text)
    who, add = (found[1], f'"{found[1]}"') if found else (repr(text), "its origin (scheme://host:port)")
    if text == "null":
        who, add = "files and of frames without an origin ('null')", "the origin of a server that they come from"
    whose = f"Pages of {who}" if text else "Pages of other origins"
    hint = f"add {add} to http.origins in the config of `onetool serve` if they should"
    return Refused(403, "bad_origin", f"{whose} may not use this server; {hint}.")


def _is_navigation(scope: Scope) -> bool:
    return all(_sent(scope, name) == [value] for name, value in _NAVIGATION)


def _sent(scope: Scope, wanted: bytes) -> list[bytes]:
    return [value for name, value in scope["headers"] if name == wanted]
