"""Who we are to an MCP server over HTTP: the doors of this part. `http_auth` for connections, `login` for people.

Connections in the background ask nobody: where a person is needed they end with `NeedsLogin`. Tokens are kept in a file
beside the server's other state, and nowhere else: no log and no message has them.
"""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from onetool.sources.mcp_servers.oauth_settings import AuthValue, Bearer, Credentials, Login, problems, read
from onetool.sources.mcp_servers.oauth_store import Store, forget
from onetool.sources.mcp_servers.oauth_trouble import AuthFailed, NeedsLogin, trouble_in, watching

if TYPE_CHECKING:
    import httpx2

    from onetool.sources.mcp_servers.oauth_kinds import Ask, PersonAuth

__all__ = ["AuthFailed", "NeedsLogin", "http_auth", "login", "logout", "problems", "trouble_in", "watching"]

PATIENCE = 300.0  # seconds for a person to log in
PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}  # leaves no session behind
HEADERS = {"Accept": "application/json, text/event-stream"}

Say = Callable[[str], None]


def http_auth(
    name: str,
    url: str,
    auth: AuthValue,
    store_folder: Path,
    ask: "Ask | None" = None,
    known: Say = lambda value: None,
) -> "httpx2.Auth":
    """What the transport's HTTP client takes as its `auth`. `ask` is None where there is nobody to ask.

    Without `auth` in the config a login is used where there is one: blocks from elsewhere never mention it. Each secret
    value is told to `known` before it is used.
    """
    from onetool.sources.mcp_servers.oauth_kinds import BearerAuth, ProgramAuth

    settings = read(auth)
    match settings:
        case Bearer():
            return BearerAuth(name, settings.token)
        case Credentials():
            return ProgramAuth(name, url, settings, Store(store_folder, name, url, settings.key), known)
        case Login():
            return _person(name, url, settings, store_folder, ask, known)
        case None:
            quiet = _person(name, url, Login(), store_folder, ask, known)
            quiet.unasked("wants a token (`auth` or `headers` in its config) or a login")
            return quiet


async def login(
    name: str,
    url: str,
    auth: AuthValue,
    store_folder: Path,
    say: Say,
    browse: Say | None = None,
    patience: float = PATIENCE,
) -> str | None:
    """Have a person log in, and keep what comes of it. The scopes that were granted, where the server says so.

    Whatever ends it, also Ctrl-C: nothing listens any more, and what was kept before is as it was.
    """
    import asyncio

    import httpx2

    from onetool.sources.mcp_servers.oauth_callback import HOST, listening, open_browser

    settings = _of_person(name, auth)
    browse = browse or open_browser

    def show(page: str) -> None:
        say(f"To log in to {name}, open this page in a browser on this machine:\n\n  {page}\n")
        browse(page)

    try:
        async with (
            asyncio.timeout(patience),
            listening(name, settings.redirect_port, show) as ask,
            httpx2.AsyncClient(timeout=20.0, headers=HEADERS) as client,
        ):
            person = _person(name, url, settings, store_folder, ask, lambda value: None)
            return await person.log_in(client, client.build_request("POST", url, json=PING))
    except TimeoutError:
        raise AuthFailed(f"nobody has finished the login to {name} within {patience:.0f} s") from None
    except httpx2.HTTPError as error:
        raise AuthFailed(f"the server {name} can't be reached for a login: {error or type(error).__name__}") from None
    except OSError as error:
        if settings.redirect_port is None:
            raise
        place = f"{HOST}:{settings.redirect_port}"
        raise AuthFailed(f"can't listen at {place} for the end of the login: {error.strerror}") from None


def logout(name: str, store_folder: Path) -> bool:
    """Forget the login; whether there was one. It is not withdrawn at the server."""
    return forget(store_folder, name)


def _of_person(name: str, auth: AuthValue) -> Login:
    settings = read(auth) or Login()
    if not isinstance(settings, Login):
        kind = "a token" if isinstance(settings, Bearer) else "credentials of its own"
        raise AuthFailed(f"the server {name} has {kind} in its `auth`: there is nothing to log in to")
    return settings


def _person(name: str, url: str, settings: Login, folder: Path, ask: "Ask | None", known: Say) -> "PersonAuth":
    from onetool.sources.mcp_servers.oauth_kinds import PersonAuth

    return PersonAuth(name, url, settings, Store(folder, name, url, settings.key), ask, known)
