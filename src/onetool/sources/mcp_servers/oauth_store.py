"""Where the login to a server is kept: `NAME.auth.json` beside the server's other state. See http/login_store.py."""

from pathlib import Path

from onetool.http.login_store import LoginStore, forget
from onetool.sources.mcp_servers.server_cache import file_name


def auth_file(folder: Path, name: str) -> Path:
    return folder / f"{file_name(name)}.auth.json"


def server_login(folder: Path, name: str, url: str, key: str) -> LoginStore:
    return LoginStore(auth_file(folder, name), url, key)


def forget_login(folder: Path, name: str) -> bool:
    """Remove what is kept, for whichever url; whether there was anything."""
    return forget(auth_file(folder, name))
