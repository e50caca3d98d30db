"""Separates settings from code and access: a server reloads settings by itself, the others only on request.

Code is everything that lets another program or other Python code run: packs, includes (whatever they contain), the
command of a server if it is new or written differently, enabling a server with a command, and `watch: true`. All other
keys are settings, and so are the secrets in a server's arguments and environment.

A change that lets callers do more waits, too, because a half-written file must not open a server. Such changes are a
credential of `http` that is removed or changed, `http.local`, `http.admin: false`, and `fs` or `audit` if removed. New
credentials are applied.
"""

from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from onetool.config.model import Config, FsConfig, ServerSettings
from onetool.core.errors import Mistake
from onetool.services.secrets import Secret


def without_new_code(new: Config, old: Config) -> tuple[Config, list[Mistake]]:
    """Return the new config with the code and the access rules of the old one, and the changes that stay pending."""
    waiting: list[Mistake] = []
    for key, message in _looser_access(new, old):
        waiting.append(_pending(new, key, message))
        part = key.partition(".")[0]
        new = replace(new, **{part: getattr(old, part)})
    servers: dict[str, ServerSettings] = {}
    for name, block in new.servers.items():
        before = old.servers.get(name)
        is_known = before is not None and before.enabled and _program(block) == _program(before)
        if block.command is None or not block.enabled or is_known:
            servers[name] = block
            continue
        waiting.append(_pending(new, f"servers.{name}", "its command is new or has changed"))
        if before is not None:
            servers[name] = before
    if new.packs != old.packs:
        waiting.append(_pending(new, "packs", "the list of packs has changed"))
    if new.project_packs != old.project_packs:
        folder = new.project_packs or old.project_packs
        state = "removed, or no longer trusted" if new.project_packs is None else "new"
        waiting.append(Mistake(message=state, file=str(folder), severity="warning"))
    if new.watch and not old.watch:
        waiting.append(_pending(new, "watch", "watch: true is new"))
    watch = old.watch if new.watch else new.watch
    kept = {"packs": old.packs, "project_packs": old.project_packs, "watch": watch}
    return replace(new, servers=servers, **kept), waiting


def _looser_access(new: Config, old: Config) -> Iterator[tuple[str, str]]:
    """Yield the keys that would let callers do more than before, each with the change."""
    if old.http.token is not None and new.http.token is None:
        yield "http.token", "the token was removed"
    if any(one not in new.http.tokens for one in old.http.tokens):
        yield "http.tokens", "a token was removed or has changed"
    if old.http.jwt is not None and new.http.jwt != old.http.jwt:
        yield "http.jwt", "removed or changed"
    if new.http.local != old.http.local:
        yield "http.local", "new, removed or changed"
    if new.http.admin not in (False, old.http.admin):
        yield "http.admin", "removed or changed"
    if new.fs == FsConfig() != old.fs:
        yield "fs", "its roots were removed"
    if old.audit.mode == "required" != new.audit.mode:
        yield "audit", "it is no longer required"


def has_other_includes(new: Config, old: Config, changed: Iterable[str]) -> bool:
    """Return whether includes were added or removed, or are among the changed files."""
    return new.include != old.include or not {*map(str, old.include)}.isdisjoint(changed)


def _program(block: ServerSettings) -> tuple[object, ...]:
    """Return the values that decide which program runs: arguments and environment as written, with ${NAME}."""
    env = {name: _as_written(value) for name, value in block.env.items()}
    command = None if block.command is None else str(block.command)
    return command, block.cwd, [*map(_as_written, block.args)], env, block.inherit, block.url


def _as_written(text: str) -> str:
    return text.shown if isinstance(text, Secret) and "${" in text.shown else str(text)


def _pending(config: Config, key: str, message: str) -> Mistake:
    return Mistake(message=message, file=str(config.path) if config.path else None, key=key, severity="warning")
