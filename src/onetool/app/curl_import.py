"""Makes a tool of a curl command, and keeps its credentials as secrets. The command line and REST do this."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, NamedTuple

from onetool.config.secret_values import check_kept
from onetool.core.errors import OneToolError
from onetool.services.secret_file import SecretExistsError, drop_secret, has_secret, put_secret
from onetool.services.secrets import Secrets
from onetool.sources.bundles.curl import from_curl


class SecretsNotKeptError(OneToolError):
    """The secrets of an import could not be stored, and nothing of it was."""


class CurlImport(NamedTuple):
    """A tool as PUT takes it, with placeholders for its secrets; and those under the names that are used."""

    tool: dict[str, Any]
    secrets: dict[str, str]
    notes: tuple[str, ...]


def read_curl(command: str, slug: str, description: str | None, known: Secrets, reuse: bool = True) -> CurlImport:
    """The tool of a command, which is not run. Raises InvalidError.

    With `reuse` a secret that is there with the same value is used. Whoever may not read secrets must not learn by
    this whether they have guessed one.
    """
    found = from_curl(command)
    given = {name: value for name, value in found.secrets.items() if value is not None}
    tool, secrets = split_secrets(found.tool, given, known, reuse)
    words = slug.replace("-", " ")
    tool["displayName"] = f"{words[:1].upper()}{words[1:]}"
    if description is not None:
        tool["description"] = description
    return CurlImport(tool, secrets, tuple(found.notes))


def split_secrets(
    tool: Any, found: Mapping[str, str], known: Secrets, reuse: bool = True
) -> tuple[Any, dict[str, str]]:
    """The tool with placeholders, and its secrets under unused names."""
    names: dict[str, str] = {}
    for name, value in found.items():
        free, number = name, 1
        while _is_taken(known, free) and not (reuse and _value(known, free) == value):
            number += 1
            free = f"{name}_{number}"
        names[name] = free
    other = {f"${{{name}}}": f"${{{free}}}" for name, free in names.items() if free != name}
    return _renamed_placeholders(tool, other), {names[name]: value for name, value in found.items()}


@contextmanager
def secrets_stored(known: Secrets, secrets: Mapping[str, str]) -> Iterator[list[str]]:
    """Context manager that stores new secrets, gives their names, and removes them if the block fails.

    Nothing that stands in the file is replaced. If another process has taken a name since it was chosen, nothing is
    stored: whoever tries again gets another name.
    """
    new = {name: value for name, value in secrets.items() if _value(known, name) != value}
    file = known.file
    if not new:
        yield []
        return
    if file is None:
        raise SecretsNotKeptError("the secrets stand in the config itself; move them to a file: secrets: secrets.yaml")
    done: list[str] = []
    try:
        for name, value in new.items():
            if not value.strip() or not value.isprintable():
                raise SecretsNotKeptError(f"{name}: a secret is one line of text; nothing was kept.")
            put_secret(file, name, value, partial(check_kept, name, value), new_only=True)
            done.append(name)
        yield done
    except BaseException as error:
        for name in done:
            with suppress(OSError, ValueError):
                drop_secret(file, name, partial(check_kept, name, None))
        if isinstance(error, SecretExistsError):
            raise SecretsNotKeptError(f"nothing was kept in {file}: {error}; try again, with the next name") from None
        if isinstance(error, OSError | ValueError):
            raise SecretsNotKeptError(f"nothing was kept in {file}: {error}") from None
        raise


def _is_taken(known: Secrets, name: str) -> bool:
    """Whether a secret has the name: in the file, too, where another process may have put one since it was read."""
    if name in known or known.file is None:
        return name in known
    try:
        return has_secret(known.file, name)
    except (OSError, ValueError):  # storing says what is wrong with it
        return False


def _value(known: Secrets, name: str) -> str | None:
    """The value of a secret, also of one that is for some hosts only: it is compared, and sent nowhere."""
    return known.get(name, lambda _: True)


def _renamed_placeholders(value: Any, other: Mapping[str, str]) -> Any:
    if isinstance(value, str):
        for before, after in other.items():
            value = value.replace(before, after)
        return value
    if isinstance(value, dict):
        return {key: _renamed_placeholders(one, other) for key, one in value.items()}
    return [_renamed_placeholders(one, other) for one in value] if isinstance(value, list) else value
