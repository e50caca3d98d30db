"""Tells settings from code: a server reads settings again by itself, and code only on request.

Code is everything that lets another program or other Python run: packs, includes (whatever they hold), a command of
a server that is new or written differently, a server with a command that is switched on, and `watch: true`. All other
keys are settings, and so are the secrets in a server's arguments and environment.
"""

from collections.abc import Iterable

from msgspec.structs import replace

from onetool.config.model import Config, ServerSettings
from onetool.core.errors import Mistake
from onetool.services.secrets import Secret


def without_new_code(new: Config, old: Config) -> tuple[Config, list[Mistake]]:
    """Return the new config with the code of the old one, and the changes that this leaves pending."""
    waiting: list[Mistake] = []
    servers: dict[str, ServerSettings] = {}
    for name, block in new.servers.items():
        before = old.servers.get(name)
        if not _starts_other_program(block, before):
            servers[name] = block
            continue
        waiting.append(_waits(new, f"servers.{name}", "its command is new or has changed"))
        if before is not None:
            servers[name] = before
    if new.packs != old.packs:
        waiting.append(_waits(new, "packs", "the list of packs has changed"))
    if new.project_packs != old.project_packs:
        folder = new.project_packs or old.project_packs
        state = "removed, or no longer trusted" if new.project_packs is None else "new"
        waiting.append(Mistake(message=state, file=str(folder), severity="warning"))
    if new.watch and not old.watch:
        waiting.append(_waits(new, "watch", "watch: true is new"))
    watch = old.watch if new.watch else new.watch
    kept = {"packs": old.packs, "project_packs": old.project_packs, "watch": watch}
    return replace(new, servers=servers, **kept), waiting


def has_other_includes(new: Config, old: Config, changed: Iterable[str]) -> bool:
    """Return whether includes were added or removed, or are among the changed files."""
    return new.include != old.include or not {*map(str, old.include)}.isdisjoint(changed)


def _starts_other_program(block: ServerSettings, before: ServerSettings | None) -> bool:
    if block.command is None or not block.enabled:
        return False
    return before is None or not before.enabled or _program(block) != _program(before)


def _program(block: ServerSettings) -> tuple[object, ...]:
    """Return what decides which program runs: arguments and environment as they are written, with ${NAME}."""
    env = {name: _written(value) for name, value in block.env.items()}
    command = None if block.command is None else str(block.command)
    return command, block.cwd, [*map(_written, block.args)], env, block.inherit, block.url


def _written(text: str) -> str:
    return text.shown if isinstance(text, Secret) and "${" in text.shown else str(text)


def _waits(config: Config, key: str, message: str) -> Mistake:
    return Mistake(message=message, file=str(config.path) if config.path else None, key=key, severity="warning")
