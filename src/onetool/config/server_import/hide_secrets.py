"""Replaces secrets in server blocks with `${NAME}`, and translates the variables of other clients."""

import os
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from onetool.config.read import VARIABLE
from onetool.core.model_providers import PROVIDER_KEYS
from onetool.core.redaction import sounds_secret
from onetool.services.secret_file import NAME
from onetool.services.secrets import Secret, Secrets

_ANY = re.compile(r"\$?\{(?:env:[^{}]{1,200})\}|\$\{[^{}]{0,200}\}")
_NAMED = re.compile(rf"(?:env:)?({VARIABLE})(?::-(.*))?\Z", re.DOTALL)
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

# Variables and headers that are never secrets. Those that load code have to be shown before they are used.
_NOT_SECRET = re.compile(
    r"HOME|USER|LOGNAME|SHELL|LANG|LANGUAGE|LC_\w+|TZ|TERM|TMPDIR|TEMP|TMP|USERPROFILE|APPDATA|XDG_\w+|DISPLAY|HOST|PORT"
    r"|NODE_ENV|(\w+_)?LOG(_?LEVEL)?|DEBUG|VERBOSE|NO_COLOR|FORCE_COLOR|COLUMNS|LINES|CI"
    r"|PATH|LD_\w+|DYLD_\w+|PYTHON\w*|NODE_OPTIONS|NODE_PATH|BASH_ENV|PERL5\w+|JAVA_TOOL_OPTIONS|GIT_SSH_COMMAND"
    r"|\w*_ASKPASS|\w+_PROXY|KUBECONFIG|EDITOR|PAGER|BROWSER"
    r"|ACCEPT(-\w+)*|CONTENT-TYPE|USER-AGENT|ORIGIN|REFERER|CACHE-CONTROL|(\w+-)*VERSION",
    re.IGNORECASE,
)
# Values that can't be secrets: words, regions, numbers, dates, versions, addresses, hosts and paths. Stored secrets are
# masked wherever they appear, and masking `us-east-1` or a folder would spoil every result.
_NO_SECRET = re.compile(
    r"[A-Za-z]{1,12}|[a-z]{2}(-[a-z]+)+-[0-9]|[-+]?[0-9]{1,6}(\.[0-9]{1,6})?|[0-9]{4}-[0-9]{2}-[0-9]{2}"
    r"|v?[0-9]{1,4}(\.[0-9]{1,4})+"
    r"|(https?|wss?)://[\w.-]{1,80}(:[0-9]+)?(/[\w.-]{0,20})*"
    r"|[\w-]{1,20}(\.[\w-]{1,20})+(:[0-9]+)?"
    r"|(~|\.{1,2})?(/[\w .@-]{1,64})+/?"
)
_LONG_WORD = re.compile(r"(?=[^/]*[0-9])(?=[^/]*[A-Za-z])[A-Za-z0-9_-]{24,}\Z")  # in a path, a token of the server
_COMMON = {"", "true", "false", "yes", "no", "on", "off", "none", "null", "password", "changeme", "postgres", "root"}
_GENERIC = re.compile(  # API_KEY
    r"(?:(?:API|ACCESS|AUTH|CLIENT|USER|PRIVATE|DATABASE|DB|URL|MCP|TOKEN|KEY|SECRET|PASSWORD|PASS|PAT|BEARER|DSN)(?:_|\Z))+",
    re.IGNORECASE,
)
_KEY = re.compile(r"(^|[_-])(key|pat|pass|dsn)$", re.IGNORECASE)
_EVERYWHERE = {"HOME", "PATH", "USER", "LOGNAME", "SHELL", "LANG", "TMPDIR", "USERPROFILE", "APPDATA"}
_SCHEME = re.compile(r"((?:Bearer|Basic|Token|ApiKey)[ ]+)(\S.*)\Z", re.DOTALL | re.IGNORECASE)
_IN_TEXT = re.compile(
    r"(?P<before>[a-z][a-z0-9+.-]*://[^/\s:@]*:)(?P<password>[\w.~%!*+=,:-]+)(?=@)"
    r"|(?P<mark>[?&])(?P<name>[\w.-]+)=(?P<value>[\w.~%+/=:-]+)"
    r"|(?P<scheme>\b(?:Bearer|Basic|Token)[ ]+)(?P<token>[\w.+/=~-]{8,})",
    re.IGNORECASE,
)
_NAMED_ARG = re.compile(r"(--?[A-Za-z][\w-]*=|[A-Za-z_]\w*=|[A-Za-z][\w-]*:[ ]*)(?!//)(.+)\Z", re.DOTALL)
# Other arguments may be code, which has to be shown before it runs.
_VALUE = re.compile(r"(?:\w+ )?[^\s;&|<>()`'\"\\]+\Z")


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
        names = (own,) if ours or _GENERIC.fullmatch(wanted) else (wanted, own)
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


def is_secret(name: str, value: str) -> bool:
    """Return whether the value of a variable or header is a literal secret: any value, unless it can't be one."""
    if "${" in value or value.strip().lower() in _COMMON or _NOT_SECRET.fullmatch(name):
        return False
    return _sounds_secret(name) or not _NO_SECRET.fullmatch(value)


def _sounds_secret(name: str) -> bool:
    return sounds_secret(name) or _KEY.search(name) is not None


def without_secrets(
    server: str, block: dict[str, Any], collector: SecretCollector, keep: Collection[str] = ()
) -> dict[str, Any]:
    """Return the block with placeholders for its secrets, including variables and headers in `keep`."""
    return _Hider(server, collector, keep).block(block)


class _Hider:
    def __init__(self, server: str, collector: SecretCollector, keep: Collection[str]) -> None:
        self.keep = keep
        self.server = server
        self.collector = collector

    def block(self, block: dict[str, Any]) -> dict[str, Any]:
        hidden = {**block}
        if "env" in block:
            hidden["env"] = {name: self._variable(name, value) for name, value in block["env"].items()}
        if "headers" in block:
            hidden["headers"] = {name: self._value(name, value) for name, value in block["headers"].items()}
        if isinstance(auth := block.get("auth"), str):
            hidden["auth"] = auth if auth == "oauth" else self._hidden("token", auth)
        elif auth is not None:
            hidden["auth"] = {
                name: self._hidden(name, value) if name in ("token", "client_secret") else value
                for name, value in auth.items()
            }
        if "args" in block:
            hidden["args"] = [
                self._arg(before, arg) for before, arg in zip(["", *block["args"]], block["args"], strict=False)
            ]
        if "url" in block:
            hidden["url"] = self._url(block["url"])
        return hidden

    def _variable(self, name: str, value: str) -> str:
        """Hide the value of a variable, unless it may be code for a shell, which has to be shown before it runs."""
        if name in self.keep or _sounds_secret(name) or _VALUE.match(value):
            return self._value(name, value)
        return self._in_text(value)

    def _value(self, name: str, value: str) -> str:
        """Hide a value if it is secret, or what is secret in it."""
        is_kept = name in self.keep and bool(value.strip()) and "${" not in value
        return self._hidden(name, value) if is_kept or is_secret(name, value) else self._in_text(value)

    def _arg(self, before: str, arg: str) -> str:
        """Hide the secret in `--api-key VALUE`, `--api-key=VALUE`, `NAME=VALUE` and `Header: VALUE`."""
        flag = before.lstrip("-") if before.startswith("-") and "=" not in before else ""
        if _sounds_secret(flag) and not arg.startswith("-"):
            return self._hidden(flag, arg)
        named = _NAMED_ARG.match(arg)
        if named and _sounds_secret(named[1].strip("-=: ")) and _VALUE.match(named[2]):
            return named[1] + self._hidden(named[1].strip("-=: "), named[2])
        return self._in_text(arg)

    def _url(self, url: str) -> str:
        """Hide secrets before the host, in the path and in the query."""
        start, mark, query = self._in_text(url).partition("?")
        start = "/".join(self._hidden("key", part) if _LONG_WORD.match(part) else part for part in start.split("/"))
        return start + mark + query

    def _in_text(self, text: str) -> str:
        """Hide passwords before hosts, secrets in queries, and what follows `Bearer`."""

        def hidden(found: re.Match[str]) -> str:
            if found["password"]:
                return found["before"] + self._hidden("password", found["password"])
            if found["name"]:
                return (
                    found[0]
                    if not _sounds_secret(found["name"])
                    else (found["mark"] + found["name"] + "=" + self._hidden(found["name"], found["value"]))
                )
            return found["scheme"] + self._hidden("token", found["token"])

        return _IN_TEXT.sub(hidden, text)

    def _hidden(self, name: str, value: str) -> str:
        """Hide a value under the server's name and this one, for example DOCS_API_KEY for X-API-Key of `docs`."""
        if "${" in value or value.strip().lower() in _COMMON:
            return value
        scheme = _SCHEME.match(value)
        before, bare = (scheme[1], scheme[2]) if scheme else ("", value)
        if not (name.isupper() and NAME.fullmatch(name)):  # not a variable
            is_token = name.lower() in ("authorization", "proxy-authorization")
            own = "TOKEN" if is_token else variable_name(name).removeprefix("X_")
            prefix = f"{variable_name(self.server)}_"
            name = own if own.startswith(prefix) else prefix + own
        return before + self.collector.placeholder_for(name, self.server, bare)
