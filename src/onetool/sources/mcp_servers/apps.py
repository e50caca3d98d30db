"""MCP Apps: rewrite the addresses of a server's pages (`ui://`) in its tools, results and resources for our clients.

Several servers may use the same address, so the name of the pack is inserted: `ui://map/view.html` of the server
`trips` becomes `ui://trips/map/view.html`. Other addresses are unchanged, unless they are ambiguous. These get a
prefix: `ot://packs/trips/notes://today`.
"""

from collections.abc import Mapping
from typing import Any

from onetool.core.json_data import Block

SCHEME = "ui://"
PACKS = "ot://packs/"
EXTENSION = "io.modelcontextprotocol/ui"
SETTINGS = {"mimeTypes": ["text/html;profile=mcp-app"]}
OWN_META = ("onetool/", "io.modelcontextprotocol/")  # prefixes of keys that servers may not send to our clients


def address_here(pack: str, uri: str) -> str:
    """Return the address under which our clients read a page; other addresses are unchanged."""
    return f"{_place(pack, SCHEME)}{uri[len(SCHEME) :]}" if uri.lower().startswith(SCHEME) else uri


def address_below(pack: str, uri: str) -> str:
    """Return the address of a resource whose own address is ambiguous here."""
    return f"{_place(pack, PACKS)}{uri}"


def address_there(pack: str, uri: str) -> str:
    """Return the address under which the server itself knows a page or an ambiguous resource."""
    if uri.startswith(place := _place(pack, SCHEME)):
        return f"{SCHEME}{uri.removeprefix(place)}"
    return uri.removeprefix(_place(pack, PACKS))


def _place(pack: str, before: str) -> str:
    from urllib.parse import quote  # not needed for menus

    return f"{before}{quote(pack, safe='')}/"


def passed_meta(pack: str, meta: Any) -> dict[str, Any]:
    """Return a server's `_meta` for our clients, without keys that are reserved for us or the protocol."""
    if not isinstance(meta, Mapping):
        return {}
    return {key: _addressed(pack, value) for key, value in meta.items() if not key.startswith(OWN_META)}


def _addressed(pack: str, value: Any) -> Any:
    if isinstance(value, str):
        return address_here(pack, value)
    if isinstance(value, Mapping):
        return {key: _addressed(pack, item) for key, item in value.items()}
    return [_addressed(pack, item) for item in value] if isinstance(value, list | tuple) else value


def passed_part(pack: str, part: Mapping[str, Any]) -> Block:
    """Return a content block, part of a resource or entry of a list, rewritten for our clients."""
    passed = {**part}
    if isinstance(uri := part.get("uri"), str):
        passed["uri"] = address_here(pack, uri)
    if isinstance(inside := part.get("resource"), Mapping):
        passed["resource"] = passed_part(pack, inside)
    meta = passed_meta(pack, passed.pop("_meta", None))
    return {**passed, "_meta": meta} if meta else passed


def page_of(meta: Any) -> str | None:
    """Return the address of the page in a tool's `_meta`, if there is one."""
    found = meta if isinstance(meta, Mapping) else {}
    uri = _ui(found).get("resourceUri", found.get("ui/resourceUri"))
    return uri if isinstance(uri, str) else None


def is_for_apps(meta: Mapping[str, Any]) -> bool:
    """Return whether the server's pages may call a tool with this `_meta`."""
    return "app" in _visibility(meta)


def not_for_apps(meta: Mapping[str, Any]) -> dict[str, Any]:
    """Return `_meta` that forbids pages to call the tool; hosts enforce this."""
    return {
        **meta,
        "ui": {**_ui(meta), "visibility": [user for user in _visibility(meta) if user != "app"]},
    }


def _visibility(meta: Mapping[str, Any]) -> list[Any]:
    found = _ui(meta).get("visibility")
    return list(found) if isinstance(found, list | tuple) else ["model", "app"]


def _ui(meta: Mapping[str, Any]) -> Mapping[str, Any]:
    found = meta.get("ui")
    return found if isinstance(found, Mapping) else {}
