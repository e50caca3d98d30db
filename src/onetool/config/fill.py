"""Fills in secrets: `${NAME}` and `${file:/run/secrets/key}` in the data of a config; and reads the key `secrets`.

Placeholders are replaced in one pass: a secret that itself contains `${…}` is not expanded. No error message repeats a
value.
"""

import os
import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from shlex import quote
from stat import S_ISREG
from typing import Any

import msgspec

from onetool.config.check import BAD, convert
from onetool.config.cluster import UnsetSecret
from onetool.config.file_checks import SECRETS_FILE
from onetool.config.findings import Findings
from onetool.config.read import (
    ANY_PLACEHOLDER,
    FILE,
    FILE_PLACEHOLDER,
    PLACEHOLDER,
    ConfigFileError,
    data_of,
    mistake_of,
    read_config,
    read_text,
    read_yaml,
)
from onetool.core.errors import Mistake
from onetool.core.file_facts import is_writable_by_others
from onetool.core.text import did_you_mean
from onetool.core.yaml import child
from onetool.services.secrets import MAX_LENGTH, Fits, Secret, SecretHostError, Secrets, too_open

SECRETS_IN_CONFIG = "The secrets are inside the config. Move them to a file first (secrets: secrets.yaml)"

# An entry of these keys with a missing secret is skipped; the rest of the config works.
OPTIONAL_KEYS = {"servers"}

# Missing secrets of these keys are reported when they are needed: most commands need neither address nor key of a
# replica.
LATE_KEYS = {"cluster"}

# `${…}` in these keys is literal text.
LITERAL_KEYS = {"tools", "snippets", "aliases", "prompts", "allowedHosts"}

_UNSUPPORTED = re.compile(
    r"\$\{[^{}]{0,100}\}"
)  # bounded: otherwise a string of nothing but `${` would take quadratic time


def fill(
    data: dict[str, Any], secrets: Secrets | None, findings: Findings, kept_here: Collection[str] = frozenset()
) -> dict[str, Any]:
    """Return the data with secrets filled in. `secrets` is None if they could not be read, which has been reported.

    The names in `kept_here` are filled in only if they are stored with the config.
    """
    filled: dict[str, Any] = {}
    for key, value in data.items():
        kept = () if key == "http" else kept_here  # http.token may come from any source
        filler = _Filler(secrets, findings, key in OPTIONAL_KEYS, kept, key in LATE_KEYS)
        if key in LITERAL_KEYS:
            filled[key] = value
        elif key == "servers" and isinstance(value, dict):
            filled[key] = {name: filler.server(one, child(key, name)) for name, one in value.items()}
        else:
            filled[key] = filler.value(value, key)
    return filled


def names_in(text: object) -> list[str]:
    return PLACEHOLDER.findall(text) if isinstance(text, str) else []


class _Filler:
    def __init__(
        self,
        secrets: Secrets | None,
        findings: Findings,
        spares: bool,
        kept_here: Collection[str],
        is_late: bool,
    ) -> None:
        self.secrets = secrets
        self.findings = findings
        self.spares = spares
        self.kept_here = kept_here
        self.is_late = is_late

    def value(self, value: Any, path: str, fits: Fits | None = None) -> Any:
        """Fill in secrets in a value.

        `fits` returns whether given hosts receive the value; None means that it is not sent.
        """
        if isinstance(value, str):
            return self._text(value, path, fits) if "${" in value else value
        if isinstance(value, dict):
            return {
                key: item if _is_final(item) else self.value(item, child(path, key), fits)
                for key, item in value.items()
            }
        if isinstance(value, list):
            return [
                item if _is_final(item) else self.value(item, f"{path}[{at}]", fits) for at, item in enumerate(value)
            ]
        return value

    def server(self, block: Any, path: str) -> Any:
        """Fill in secrets in a block of `servers`. Values sent to its URL may contain secrets bound to that host."""
        url = block.get("url") if isinstance(block, dict) else None
        if not isinstance(url, str):
            return self.value(block, path)
        secrets, text = self.secrets, url

        def secret_or_name(match: "re.Match[str]") -> str:
            return (secrets.get(match[1], lambda _: True) if secrets else None) or match[0]

        def fits(hosts: tuple[str, ...]) -> bool:
            from onetool.http.allowed_hosts import is_bound_to  # most configs have no secrets bound to hosts
            from onetool.http.errors import RequestRefusedError
            from onetool.http.url import parse_url

            try:
                return is_bound_to(parse_url(PLACEHOLDER.sub(secret_or_name, text)), hosts)
            except RequestRefusedError:
                return False

        return {
            key: self.value(item, child(path, key), fits if _is_sent_to_url(key, item) else None)
            for key, item in block.items()
        }

    def _text(self, text: str, path: str, fits: Fits | None) -> str:
        names = list(dict.fromkeys(ANY_PLACEHOLDER.findall(text)))
        for other in _UNSUPPORTED.findall(ANY_PLACEHOLDER.sub("", text)):
            self.findings.warn(path, f"{other} is not replaced", "only ${NAME} is replaced, by the secret of that name")
        if not names:
            return text
        if self.secrets is None:
            self.findings.unusable.add(path)
            return text
        values: dict[str, str | None] = {}
        report = self.findings.warn if self.spares else self.findings.error
        for name in names:
            try:
                values[name] = self._secret(name, self.secrets, fits)
                if values[name] is None and self.is_late:
                    raise SecretFileError(f"{name} is not set on this machine", "")
                if values[name] is None:
                    self._report_unset(name, self.secrets, path)
            except SecretFileError as error:
                if self.is_late:
                    return UnsetSecret(text, name, self.findings.mistake(path, str(error)))
                report(path, str(error), error.hint)
                values[name] = None
            except SecretHostError as bound:
                report(path, str(bound), bound.hints[0])
                values[name] = None
        if None in values.values():
            if not self.spares:
                self.findings.unusable.add(path)
            return text
        filled = ANY_PLACEHOLDER.sub(lambda match: values[match[1]] or "", text)
        return Secret(filled, shown=text)

    def _secret(self, name: str, secrets: Secrets, fits: Fits | None) -> str | None:
        """Return the value of a placeholder; None if it is not set."""
        if name.startswith(FILE):
            return read_secret_file(name.removeprefix(FILE), secrets)
        elsewhere = name in self.kept_here and secrets.where(name) not in ("file", "config")
        return None if elsewhere else secrets.get(name, fits)

    def _report_unset(self, name: str, secrets: Secrets, path: str) -> None:
        file = secrets.file
        place = f"add it to {file}" if file else "set a file with `secrets: secrets.yaml` and add it there"
        hint = f"run: onetool auth set {name}; or set the environment variable {name}, or {place}"
        # A server must not get a secret of a similar name: it would be another service's token.
        near = None if self.spares else did_you_mean(name, secrets.names())
        report = self.findings.warn if self.spares else self.findings.error
        report(path, f"the secret {name} is not set", f"{near} Otherwise {hint}" if near else hint)


def _is_final(value: Any) -> bool:
    """Return whether a value has no placeholders; most values are found here, without their paths."""
    return "${" not in value if type(value) is str else not isinstance(value, dict | list)


def _is_sent_to_url(key: str, value: Any) -> bool:
    """Return whether a key of a server is sent to its URL and nowhere else. Credentials of a login are not."""
    if key != "auth" or not isinstance(value, dict):
        return key in ("url", "headers", "auth")
    return value.get("type") == "bearer"


# The key `secrets`


class HostBoundSecret(msgspec.Struct, frozen=True, kw_only=True):
    """A secret bound to hosts, written as in `allowedHosts`. A host means https unless it begins with http://."""

    value: Secret
    hosts: tuple[str, ...]

    def problems(self) -> Iterator[tuple[str, str, str | None]]:
        from onetool.http.allowed_hosts import read_binding  # most secrets have no hosts

        if not self.hosts:
            yield "hosts", "hosts is empty", "list the hosts of the secret, or write the value alone: KEY: value"
        for host in self.hosts:
            try:
                if not read_binding(host).host:
                    yield "hosts", f"{host!r} matches any host", "list the hosts of the secret"
            except ValueError as error:
                yield "hosts", str(error).removeprefix("allowedHosts: "), None


class SecretFileError(ValueError):
    """A secret file that can't be used."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


def read_secret_file(path: str, secrets: Secrets) -> str:
    """Return the content of a placeholder's file, without trailing line ends. Raises SecretFileError.

    Links are followed, because Kubernetes mounts secrets as links. Other users may read the file, because Docker mounts
    it that way, but must not be able to write to it. `secrets` records the file and masks the value.
    """
    if not os.path.isabs(path):
        raise SecretFileError(f"{path} is not an absolute path", "write ${file:/run/secrets/NAME}")
    secrets.files.append(Path(path))
    try:
        status = os.stat(path)
        if not S_ISREG(status.st_mode):
            raise SecretFileError(
                f"{path} is not a regular file", "use a file that contains the secret and nothing else"
            )
        if is_writable_by_others(status):
            message = f"{path} is ignored, because other users can write to it"
            raise SecretFileError(message, f"run: chmod go-w {quote(path)}")
        with open(path, "rb") as file:
            data = file.read(MAX_LENGTH + 1)
        value = data.decode().rstrip("\r\n")
    except OSError as error:
        hint = "check that the secret is mounted, and that this user may read it: ls -lL"
        raise SecretFileError(f"can't read the secret {path}: {error.strerror or error}", hint) from None
    except UnicodeDecodeError:
        raise SecretFileError(f"{path} is not UTF-8 text", "store the secret in it as text") from None
    if not value or len(data) > MAX_LENGTH:
        what = "empty" if not value else f"larger than {MAX_LENGTH // 1024} KiB"
        raise SecretFileError(f"{path} is {what}", "use a file that contains the secret and nothing else")
    secrets.mask_always(value)
    return value


def read_secrets(
    named: Any, home: Path, env: Mapping[str, str], findings: Findings, may_be_missing: bool = False
) -> Secrets | None:
    """Return the secrets of the file or mapping, and of the environment. None if the file or mapping has a mistake.

    The default file is `secrets.yaml` in the state folder, where `onetool auth` stores secrets.
    """
    if named is None:
        file = home / SECRETS_FILE
        return _from_file(file, None, env, findings) if file.exists() else Secrets(env=env, file=file)
    if isinstance(named, dict):
        findings.warn("secrets", "the config itself contains secrets", "move them to a file: secrets: secrets.yaml")
        return _secrets_in(named, "secrets", findings, env)
    # The file's own name may use only the environment: `onetool trust` has to see where a project's secrets are.
    if isinstance(named, str) and FILE_PLACEHOLDER.search(named):
        hint = "write the path itself: secrets: secrets.yaml"
        findings.error("secrets", "${file:…} can't name the secrets file", hint)
        return None
    filled = fill({"secrets": named}, Secrets(env=env), findings)["secrets"]
    path = convert(filled, Path | dict[str, str], "secrets", findings)
    if path is BAD:
        return None
    if may_be_missing and not path.exists():
        return Secrets(env=env, file=path)
    return _from_file(path, findings.mistake("secrets", ""), env, findings)


def _from_file(path: Path, entry: Mistake | None, env: Mapping[str, str], findings: Findings) -> Secrets | None:
    """Return the secrets of a file that the config names in `entry`."""
    at = entry or Mistake(message="", file=str(path), line=1)
    command = too_open(path)
    if command:
        findings.errors.append(
            msgspec.structs.replace(at, message=f"other users can read or write {path}", hint=f"run: {command}")
        )
        return None
    try:
        document = read_yaml(path)
    except ConfigFileError as refused:
        findings.errors.append(mistake_of(refused, path, entry))
        return None
    own = Findings.of(path, document)
    secrets = Secrets(env=env, file=path)
    if document.data is not None:
        secrets = _secrets_in(document.data, "", own, env, path)
    findings.errors += own.errors
    return None if own.errors else secrets


def _secrets_in(
    data: Any, path: str, findings: Findings, env: Mapping[str, str], file: Path | None = None
) -> Secrets | None:
    """Return the secrets of a mapping. A value that is just `${file:…}` is replaced by the content of that file."""
    if not isinstance(data, dict):
        findings.error(path, "expected a mapping of names to strings", "write NAME: value")
        return None
    values: dict[str, str] = {}
    hosts: dict[str, tuple[str, ...]] = {}
    secrets = Secrets(env=env, file=file)
    for name, entry in data.items():
        place = child(path, name)
        found = convert(entry, HostBoundSecret, place, findings) if isinstance(entry, dict) else entry
        if isinstance(found, HostBoundSecret):
            found, hosts[name] = str(found.value), found.hosts
        if isinstance(found, str):
            try:
                from_file = FILE_PLACEHOLDER.fullmatch(found)
                values[name] = read_secret_file(from_file[1], secrets) if from_file else found
            except SecretFileError as error:
                findings.error(place, str(error), error.hint)
        elif not isinstance(entry, dict):
            findings.error(place, "a secret must be a string", "quote it")
    if len(values) != len(data):
        return None
    return Secrets(values, env=env, file=file, hosts=hosts, files=secrets.files)


def is_in_config(config: Path | None, secret: str) -> bool:
    """Return whether the config, or a file that it includes, has a placeholder for this secret."""
    if config is None:
        return False
    files = read_config(config, Findings()).files
    return any(f"${{{secret}}}" in file.read_text(errors="replace") for file in files)


def check_kept(secret: str, value: str | None, draft: Path) -> None:
    """Raise ValueError unless the draft of the secrets file can be read and contains this value."""
    try:
        kept = (data_of(read_text(draft)) or {}).get(secret)
        kept = kept["value"] if isinstance(kept, dict) else kept
    except (ConfigFileError, KeyError, AttributeError):
        kept = draft  # unreadable, so not the value that was meant
    if kept != value:
        raise ValueError("Its YAML layout can't be edited automatically; edit it by hand")
