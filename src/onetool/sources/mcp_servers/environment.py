"""The environment of a server's process: basic variables, a company's network settings, and the server's `env`.

With advice for servers that don't start in it.
"""

import os
import re
import shlex
from pathlib import PurePath

from onetool.core.redaction import sounds_secret
from onetool.sources.mcp_servers.settings import ServerSettings

KEPT = ("PATH", "HOME", "LANG", "LANGUAGE")

# Variables that `uvx`, `npx` and servers need behind a company's certificate authority, proxy or package index.
CERTIFICATES = (
    "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "NODE_EXTRA_CA_CERTS", "PIP_CERT", "UV_NATIVE_TLS",
    "npm_config_cafile",
)  # fmt: skip
PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")
INDEXES = (
    "PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "UV_INDEX", "UV_DEFAULT_INDEX", "UV_INDEX_URL", "npm_config_registry",
)  # fmt: skip
ADDRESSES = (*PROXIES, *map(str.lower, PROXIES), *INDEXES)

MIN_MASKED = 8  # characters of a value; shorter values, such as `true`, also occur in other text
_USER_INFO = re.compile(r"[^/\s]@")  # also in a password with a slash, but not in https://host/@scope
_QUERY_NAME = re.compile(r"[?&]([^=&#\s]+)=")
_NETWORK_ERROR = re.compile(
    r"certificate|cert_|self.signed|unknown.?issuer|\bssl|\btls|\benotfound|eai_again|getaddrinfo|name resolution|"
    r"name or service not known|nodename nor servname|resolve host|dns error|lookup address",
    re.IGNORECASE,
)
# What servers for version 1 of the Python SDK say when they get version 2. Version 1 brought httpx along.
_MCP_2 = re.compile(
    r"No module named '(?:mcp\.server\.fastmcp\b|httpx')|cannot import name '\w+' from 'mcp[.']|"
    r"'Server' object has no attribute '(?:(?:list|call|get|read|set|subscribe|unsubscribe)_\w+|request_context)'"
)
_MCP_1 = "mcp<2"
_UV = (("uvx",), ("uv", "tool", "run"), ("uv", "run"))  # take --with


def environment(settings: ServerSettings) -> dict[str, str]:
    """Return the environment of the process. The block's own `env` comes last."""
    ours = {name: value for name, value in os.environ.items() if name in KEPT or name.startswith("LC_")}
    return {**ours, **inherited(settings), **{name: str(value) for name, value in settings.env.items()}}


def inherited(settings: ServerSettings) -> dict[str, str]:
    """Return the network variables to pass on, unless the block disables that or sets them itself."""
    if not settings.inherit:
        return {}
    return {name: value for name, value in _network(settings).items() if not _has_credentials(name, value)}


def masked_values(settings: ServerSettings) -> tuple[str, ...]:
    """Return the inherited values that the server's log must mask."""
    values = {value.rstrip("/") for value in inherited(settings).values()}
    return tuple(sorted((value for value in values if len(value) >= MIN_MASKED), key=len, reverse=True))


def start_advice(settings: ServerSettings, message: str) -> str:
    """Return advice for a start that failed with this message; empty if the cause is unknown."""
    if settings.transport != "stdio":
        return ""
    if _MCP_2.search(message) and not any(_MCP_1 in word for word in settings.args):
        return f"; it was written for mcp 1 and got mcp 2. {_pin_advice(settings.command_line)}"
    names = ", ".join((*CERTIFICATES, *PROXIES, *INDEXES))
    is_network = _NETWORK_ERROR.search(message) is not None
    if not settings.inherit:
        return f"; inherit: false in its block keeps these variables from it: {names}" if is_network else ""
    advice = ""
    if is_network:
        advice += f"; if your network has a certificate authority, proxy or package index, set it for OneTool: {names}"
    if withheld := [name for name, value in _network(settings).items() if _has_credentials(name, value)]:
        lines = ", ".join(f'{name}: "${{{name}}}"' for name in withheld)
        advice += f"; not passed on because of credentials: {', '.join(withheld)} (to pass it, add env: {{{lines}}})"
    return advice


def _pin_advice(words: tuple[str, ...]) -> str:
    """Return how to start this command line with version 1 of the Python SDK."""
    started = (PurePath(words[0]).stem, *words[1:])
    for runner in _UV:
        if started[: len(runner)] == runner:
            at = len(runner)
            return f"Pin it in its args: {shlex.join((*words[:at], '--with', _MCP_1, *words[at:]))}"
    return f"Pin it where the server is installed: pip install {shlex.quote(_MCP_1)}"


def _network(settings: ServerSettings) -> dict[str, str]:
    own = {name.upper() for name in settings.env}
    names = [name for name in (*CERTIFICATES, *ADDRESSES) if name.upper() not in own]
    return {name: value for name in names if (value := os.environ.get(name))}


def _has_credentials(name: str, value: str) -> bool:
    if name not in ADDRESSES and "://" not in value:
        return False  # a file path may contain an @
    return bool(_USER_INFO.search(value)) or any(map(sounds_secret, _QUERY_NAME.findall(value)))
