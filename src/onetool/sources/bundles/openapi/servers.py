"""Where the operations of a document are: its servers, with their variables filled in. URLs are read strictly."""

import re
from typing import Any, NamedTuple
from urllib.parse import urljoin

from onetool.handlers.http.refusal import Refusal
from onetool.handlers.http.url import parse_url
from onetool.sources.bundles.openapi.document import Unresolved

_DOCUMENT = re.compile(r"\.(json|ya?ml)$", re.IGNORECASE)  # the URL of a document, not of an API
_VARIABLE = re.compile(r"\{([^{}]{1,100})\}")


class Where(NamedTuple):
    """What the caller knows of where the API is."""

    document: str | None = None  # its URL: relative servers are relative to it
    api: str | None = None  # where it is, whatever host the document names


def base_of(servers: Any, where: Where) -> str:
    """The first server's URL, without a slash at its end. Raises Unresolved with what is wrong."""
    base_url = where.api or where.document
    given = [one for one in servers if isinstance(one, dict)] if isinstance(servers, list) else []
    url = _filled(given[0]) if given else "/"
    if not re.match(r"https?://", url, re.IGNORECASE):
        if re.match(r"[A-Za-z][A-Za-z0-9+.-]*:", url) or url.startswith("//"):
            raise Unresolved(f"its server {url[:100]!r} is neither http:// nor https://")
        if base_url is None:
            raise Unresolved(f"its server {url[:100]!r} is relative, so it does not say where the API is: give its URL")
        url = urljoin(base_url, url) if given or _DOCUMENT.search(base_url) else base_url
    elif where.api is not None:
        url = where.api
    return checked(url)


def checked(url: str) -> str:
    """A URL that can stand in a template: nothing in it is a placeholder, and no two readers see different hosts."""
    if "{" in url or "?" in url or "#" in url:
        raise Unresolved(f"its server {url[:100]!r} has a part that can't stand before a path")
    try:
        parse_url(url)
    except Refusal as refusal:
        raise Unresolved(f"its server {url[:100]!r}: {refusal}") from None
    return url.rstrip("/")


def host_of(url: str) -> str:
    """As `allowedHosts` has it."""
    return parse_url(url).authority


def _filled(server: dict[str, Any]) -> str:
    url = server.get("url")
    if not isinstance(url, str):
        raise Unresolved("its server has no url")
    variables = server.get("variables")

    def default(found: re.Match[str]) -> str:
        variable = variables.get(found[1]) if isinstance(variables, dict) else None
        value = variable.get("default") if isinstance(variable, dict) else None
        if value is None:
            raise Unresolved(f"its server {url[:100]!r}: the variable {found[1]!r} has no default")
        return str(value)

    return _VARIABLE.sub(default, url.strip())
