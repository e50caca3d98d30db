"""Which versions of a package there are, asked of a package index with a JSON API.

Settings: `versions: {index: "https://…/{name}/json"}`.
"""

from typing import Any

from onetool.sdk import ToolFailure, batch_execute, get_config, lazy_client, requires_lib, safe_request, tool

pack = "versions"


def _make_client() -> Any:
    import httpx  # only when a version is asked for

    return httpx.Client(timeout=5, follow_redirects=True)


_client = lazy_client(_make_client)


@tool(idempotent=True, read_only=True, timeout=30)
@requires_lib("httpx", install="pip install httpx")
def latest(name: str) -> str:
    """Tell the newest version of a package."""
    ok, data = safe_request(_client(), "GET", _address(name))
    if not ok:
        raise ToolFailure(f"{name}: {data}", reason="source_unavailable")
    try:
        return data["info"]["version"]
    except (KeyError, TypeError):
        raise ToolFailure(f"{name}: the index gave an answer of another shape") from None


@tool(idempotent=True, read_only=True, timeout=60)
@requires_lib("httpx", install="pip install httpx")
def latest_of_many(names: list[str]) -> dict[str, Any]:
    """Tell the newest versions of many packages, asked for side by side; one that fails says why."""
    return batch_execute(names, latest, max_workers=8, as_dict=True)


def _address(name: str) -> str:
    index = get_config().get("index")
    if not index:
        raise ToolFailure('set versions.index under "settings" in the config: an address with {name} in it')
    return index.replace("{name}", name)
