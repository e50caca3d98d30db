"""Replaces secrets in server blocks with `${NAME}`, and translates the variables of other clients."""

import os
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from onetool.config.read import VARIABLE
from onetool.core.json_data import data_in
from onetool.core.model_providers import PROVIDER_KEYS
from onetool.core.redaction import sounds_secret
from onetool.services.secret_file import NAME
from onetool.services.secrets import Secret, Secrets

_ANY = re.compile(r"\$?\{(?:env:[^{}]{1,200})\}|\$\{[^{}]{0,200}\}")
_NAMED = re.compile(rf"(?:env:)?({VARIABLE})(?::-(.*))?\Z", re.DOTALL)
_LOADS_CODE = re.compile(r"PATH|LD_.*|DYLD_.*|PYTHON.*|NODE_OPTIONS", re.IGNORECASE)
_BARE = re.compile(r"\$([A-Z_][A-Z0-9_]*)\Z")


def variable_name(text: str) -> str:
    """Convert a string to the name of a secret: GITHUB_TOKEN for github-token."""
    name = re.sub(r"[^A-Za-z0-9]+", "_", text).strip("_").upper() or "SERVER"
    return f"_{name}" if name[0].isdigit() else name


class Variables:
    """A translator of the variables in one block. `notes` name the variables that our config doesn't support."""

    def __init__(self, folder: Path, inputs: Mapping[str, Mapping[str, Any]], secrets: "SecretCollector") -> None:
        self.notes: list[str] = []
        self._inputs = inputs
        self._secrets = secrets
        self._fixed = {
            "workspaceFolder": str(folder),
            "workspaceRoot": str(folder),
            "workspaceFolderBasename": folder.name,
            "userHome": os.path.expanduser("~"),
            "pathSeparator": os.sep,
            "/": os.sep,
        }

    def ours(self, text: str) -> str:
        if bare := _BARE.match(text):  # Gemini's short form, only as a whole string
            return f"${{{bare[1]}}}"
        return _ANY.sub(lambda found: self._replaced(found[0]), text)

    def _replaced(self, written: str) -> str:
        inside = written.lstrip("$")[1:-1]
        if inside in self._fixed:
            return self._fixed[inside]
        if inside.startswith("input:"):
            asked = self._inputs.get(inside.removeprefix("input:"), {})
            default = asked.get("default") if not asked.get("password") else None
            name = variable_name(inside.removeprefix("input:"))
            return self._variable(name, default if isinstance(default, str) else None)
        if named := _NAMED.match(inside):
            return self._variable(named[1], named[2])
        self.notes.append(f"{written} is not replaced: OneTool supports only ${{NAME}}")
        return written

    def _variable(self, name: str, default: str | None) -> str:
        if default is None or self._secrets.has(name) or sounds_secret(name) or name.upper().endswith("_PAT"):
            return f"${{{name}}}"  # the default of a secret is never used
        self.notes.append(f"{name} is not set: its default was written to the config")
        return default


# Secrets

_WORDS = {
    "TOKEN", "KEY", "APIKEY", "SECRET", "PASSWORD", "PASSWD", "PASSPHRASE", "PASS", "PAT", "CREDENTIAL", "CREDENTIALS",
    "AUTHORIZATION", "BEARER", "COOKIE", "DSN",
}  # fmt: skip
_HARMLESS = {
    "PATH", "FILE", "DIR", "FOLDER", "ID", "URL", "URI", "NAME", "MODE", "TYPE", "TTL", "LIMIT", "LENGTH", "SIZE",
    "TIMEOUT", "COUNT", "ENDPOINT", "METHOD", "HEADER", "PREFIX", "REGION", "ENABLED", "SEP",
}  # fmt: skip
_VAGUE = {"API", "ACCESS", "AUTH", "CLIENT", "USER", "PRIVATE", "DATABASE", "DB", "URL", "MCP"}
_EVERYWHERE = {"HOME", "PATH", "USER", "LOGNAME", "SHELL", "LANG", "TMPDIR", "USERPROFILE", "APPDATA"}
# Stored secrets are masked wherever they appear, and masking common words would spoil every result.
_NO_SECRET = {
    "true", "false", "yes", "no", "on", "off", "none", "null", "0", "1", "test", "dev", "demo", "local", "localhost",
    "default", "example", "admin", "root", "user", "guest", "postgres", "mysql", "redis", "password", "changeme",
}  # fmt: skip
_KNOWN_BY_THEIR_LOOKS = re.compile(
    r"(sk-|sk_|pk_|rk_|gh[pousr]_|github_pat_|glpat-|xox[abposr]-|AKIA|AIza|ya29\.|eyJ|npm_|hf_|ntn_|secret_|lin_api_"
    r"|figd_|shpat_|dop_v1_|SG\.|ATATT|tvly-|fc-|pplx-)[\w.+/=-]{12,}\Z"
)
_WITH_PASSWORD = re.compile(r"([a-z][a-z0-9+.-]*://[^/\s:@]*:)([^/\s@]+)(?=@)", re.IGNORECASE)
_LONG_WORD = re.compile(r"(?=[^/]*[0-9])(?=[^/]*[A-Za-z])[A-Za-z0-9_-]{24,}\Z")
_SCHEME = re.compile(r"([A-Za-z][\w-]*[ ]+)(\S.*)\Z", re.DOTALL)
_USUAL_SCHEME = re.compile(r"(?:Bearer|Basic|Token|ApiKey)[ ]+", re.IGNORECASE)
_REFERENCE = re.compile(r"(\$\{[^{}]*\})")
_WORD = re.compile(r"[^\s,;=]+")
_FLAG = re.compile(r"--?([A-Za-z][\w-]*)=(.+)\Z", re.DOTALL)
_ASSIGNED = re.compile(r"([A-Za-z_]\w*)=(.+)\Z", re.DOTALL)
_JSON_STRING = re.compile(r'"((?:[^"\\]|\\.)*)"(\s*:)?')
_HEADER = re.compile(r"([A-Za-z][\w-]*):[ ]*(.+)\Z", re.DOTALL)
# Other arguments may be code, which has to be shown before it runs.
_VALUE = re.compile(r"(?:(?:Bearer|Basic|Token|token) )?[^\s;&|<>()`'\"\\]+\Z")


class SecretCollector:
    """A collector of secrets to store, under names that are unused or already have the same value."""

    def __init__(self, secrets: Secrets, reuse: bool = True) -> None:
        """Create a collector. Without `reuse`, names don't reveal to callers whether a value is a known secret."""
        self._secrets = secrets
        self._reuse = reuse
        self.new: dict[str, Secret] = {}

    def has(self, name: str) -> bool:
        return name in self.new or self._secrets.where(name) is not None

    def is_borrowed(self, name: str) -> bool:
        """Return whether a secret comes only from the environment."""
        return name not in self.new and name not in _EVERYWHERE and self._secrets.where(name) == "environment"

    def placeholder_for(self, wanted: str, server: str, value: str) -> str:
        prefix = f"{variable_name(server)}_"
        own = wanted if wanted.startswith(prefix) else prefix + wanted
        # A pasted file must not set variables of OneTool itself.
        ours = wanted.upper().startswith("ONETOOL") or wanted in PROVIDER_KEYS
        is_generic = all(word in _WORDS or word in _VAGUE for word in wanted.upper().split("_"))  # API_KEY
        names = (own,) if ours or is_generic else (wanted, own)
        numbered = (f"{own}_{number}" for number in range(2, 10_000))
        name = next(name for name in (*names, *numbered) if self.put(name, value))
        return f"${{{name}}}"

    def put(self, name: str, value: str) -> bool:
        """Collect the value under this name. Returns whether the name can be used for it."""
        if self._secrets.hosts(name):  # bound to hosts, perhaps others
            return False
        there = self.new.get(name) or self._secrets.get(name)
        if there is not None and (there != value or (not self._reuse and name not in self.new)):
            return False
        if there is None or self._secrets.where(name) == "environment":  # the environment may change
            self.new[name] = Secret(value)
        return True


def without_secrets(
    server: str, block: dict[str, Any], collector: SecretCollector, keep: Collection[str] = ()
) -> dict[str, Any]:
    """Return the block with placeholders for its secrets, including variables and headers in `keep`."""
    return _Hider(server, collector, keep).block(block)


def is_secret(name: str, value: str) -> bool:
    """Return whether a value under this name is a literal secret."""
    if "${" in value or value.strip().lower() in _NO_SECRET or not value.strip():
        return False
    last_word = value.rpartition(" ")[2]  # for example, after `Bearer`
    return bool(_sounds_secret(name) or _KNOWN_BY_THEIR_LOOKS.match(last_word) or _WITH_PASSWORD.match(value))


def _sounds_secret(name: str) -> bool:
    words = variable_name(re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name)).split("_")
    if words[-1] in _HARMLESS:
        return False
    return sounds_secret(name) or any(word in _WORDS or word.endswith("PASSWORD") for word in words)


class _Hider:
    def __init__(self, server: str, collector: SecretCollector, keep: Collection[str]) -> None:
        self.keep = keep
        self.server = server
        self.own = variable_name(server)
        self.collector = collector

    def block(self, block: dict[str, Any]) -> dict[str, Any]:
        hidden = {**block}
        for key, hide in (("env", self._variable), ("headers", self._header)):
            if key in block:
                hidden[key] = {name: hide(name, value) for name, value in block[key].items()}
        if isinstance(auth := block.get("auth"), str):
            hidden["auth"] = auth if auth == "oauth" else self._credential("token", auth)
        elif auth is not None:
            hidden["auth"] = {
                name: self._credential(name, value) if name in ("token", "client_secret") else value
                for name, value in auth.items()
            }
        if "args" in block:
            hidden["args"] = args = []
            for arg in block["args"]:
                before = args[-1] if args else ""
                flag = before.lstrip("-") if before.startswith("-") and "=" not in before else ""
                args.append(self._arg(flag, arg))
        if "url" in block:
            hidden["url"] = self._url(block["url"])
        return hidden

    def _variable(self, name: str, value: str) -> str:
        if _LOADS_CODE.fullmatch(name):  # it has to be shown
            return value
        if not self._is_secret(name, value):
            return self._in_json(name, value)
        return self.collector.placeholder_for(name if NAME.fullmatch(name) else variable_name(name), self.server, value)

    def _header(self, name: str, value: str) -> str:
        if not self._is_secret(name, value):
            return self._in_json(name, value)
        if name.lower() in ("authorization", "proxy-authorization"):
            found = _SCHEME.match(value)
            scheme, bare = (found[1], found[2]) if found else ("", value)
            return scheme + self.collector.placeholder_for(f"{self.own}_TOKEN", self.server, bare)
        return self._placeholder(name, value)

    def _is_secret(self, name: str, value: str) -> bool:
        return is_secret(name, value) or (name in self.keep and bool(value.strip()) and "${" not in value)

    def _credential(self, name: str, value: str) -> str:
        return self._around_placeholders(name, value) if "${" in value else self._placeholder(name, value)

    def _arg(self, flag: str, arg: str) -> str:
        """Hide the secret in `--api-key VALUE`, `--api-key=VALUE`, `NAME=VALUE`, `Header: VALUE`, or a bare value."""
        if len(flag) > 1 and not arg.startswith("-") and _sounds_secret(flag) and is_secret(flag, arg):
            return self._placeholder(flag, arg)
        found = _FLAG.match(arg) or _ASSIGNED.match(arg) or _HEADER.match(arg)
        name, start = (found[1], found.start(2)) if found else (flag, 0)
        if not _VALUE.match(arg[start:]):  # perhaps code
            return arg[:start] + self._in_json(name, arg[start:], may_be_code=True)
        if found := _FLAG.match(arg):
            if _WITH_PASSWORD.match(found[2]):
                return arg[: found.start(2)] + self._without_password(found[2])
            if is_secret(found[1], found[2]):
                return arg[: found.start(2)] + self._placeholder(found[1], found[2])
            return arg[: found.start(2)] + self._in_json(found[1], found[2])
        if found := _ASSIGNED.match(arg):
            return arg[: found.start(2)] + self._variable(found[1], found[2])
        if (found := _HEADER.match(arg)) and not found[2].startswith("//"):
            return arg[: found.start(2)] + self._header(found[1], found[2])
        if _WITH_PASSWORD.match(arg):
            return self._without_password(arg)
        if is_secret("", arg):
            return self._placeholder("token", arg)
        return self._in_json(flag, arg)

    def _without_password(self, url: str) -> str:
        found = _WITH_PASSWORD.match(url)
        if found is None or "${" in found[2]:
            return url
        return found[1] + self._placeholder("password", found[2]) + url[found.end() :]

    def _around_placeholders(self, name: str, value: str) -> str:
        """Return a value with placeholders for the secrets around a `${…}` in it."""
        if "${" not in value:
            return value
        if _WITH_PASSWORD.match(value):
            return self._without_password(value)
        sounds_secret, label = _sounds_secret(name) or name in self.keep, name
        if not name or name.lower() in ("authorization", "proxy-authorization"):
            label = "token"

        def hidden(found: re.Match[str]) -> str:
            word = found[0]
            is_long = sum(map(str.isalnum, word)) > 2 and word.lower() not in _NO_SECRET
            return (
                self._placeholder(label, word)
                if _KNOWN_BY_THEIR_LOOKS.match(word) or (sounds_secret and is_long)
                else word
            )

        scheme = found[0] if (found := _USUAL_SCHEME.match(value)) else ""
        parts = _REFERENCE.split(value[len(scheme) :])
        parts[::2] = [_WORD.sub(hidden, part) for part in parts[::2]]
        return scheme + "".join(parts)

    def _in_json(self, name: str, value: str, *, may_be_code: bool = False) -> str:
        """Return the value, with its secrets hidden if it is JSON: `{"Authorization": "Bearer …"}`.

        Strings keep their escapes, so that filling in the secrets restores the same text.
        """
        if not isinstance(data_in(value), dict | list):
            return value if may_be_code else self._around_placeholders(name, value)
        key = name

        def hidden(found: re.Match[str]) -> str:
            nonlocal key
            if found[2]:
                key = found[1]
                return found[0]
            return f'"{self._header(key, found[1])}"'

        return _JSON_STRING.sub(hidden, value)

    def _url(self, url: str) -> str:
        """Hide secrets in the query, in the path, or before the host."""
        url = self._without_password(url)
        start, mark, query = url.partition("?")
        scheme, slashes, rest = start.partition("://")
        host, *path = rest.split("/")
        path = [self._placeholder("key", part) if _LONG_WORD.match(part) else part for part in path]
        pairs: list[str] = []
        for pair in query.split("&"):
            name, equals, value = pair.partition("=")
            pairs.append(
                name
                + equals
                + (self._placeholder(name, value) if is_secret(name, value) else self._around_placeholders(name, value))
            )
        return scheme + slashes + "/".join([host, *path]) + mark + "&".join(pairs)

    def _placeholder(self, name: str, value: str) -> str:
        """Hide a value under the server's name and this one, for example DOCS_API_KEY for X-API-Key of `docs`."""
        wanted = variable_name(name).removeprefix("X_")
        name = wanted if wanted.startswith(f"{self.own}_") else f"{self.own}_{wanted}"
        return self.collector.placeholder_for(name, self.server, value)
