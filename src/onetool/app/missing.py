"""Explains why a tool, a pack or a server that a call or code names is missing."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from onetool.core.errors import ToolFailure, message_of
from onetool.core.text import or_rather

if TYPE_CHECKING:
    from onetool.app.app import App
    from onetool.core.call import ToolError

WORD = re.compile(r"[^\W\d]\w*")
GUESS = re.compile(r"; did you mean [^;]*\?")


def why_missing(app: "App", name: str) -> ToolFailure | None:
    """What is wrong with a tool, or with its pack or its server, that should be there."""
    if (gone := gone_alias(app, name)) is not None:
        return gone
    pack = name.partition(".")[0]
    if app.servers is not None and (why := app.servers.missing(pack)):
        return why
    for mistake in app.mistakes:
        of_its_pack = mistake.key == "packs" and Path(mistake.file or "").stem == pack
        if of_its_pack or mistake.key == name or (mistake.key or "").endswith(f" ({name})"):
            return ToolFailure(f"it was refused: {app.redact(str(mistake))}", reason="refused")
    return _untrusted_folder(app, name)


def gone_alias(app: "App", name: str) -> ToolFailure | None:
    """An alias whose target is not there: what is wrong is the target, not the alias."""
    target = app.config.aliases.get(name)
    if target is None or app.registry.get(app.real_name(target)) is not None:
        return None
    why = why_missing(app, target) if target not in app.config.aliases else None
    near = f"; {message_of(why)}" if why else or_rather(target, app.registry.names())
    return ToolFailure(f"{name} is an alias of {target}, and there is no tool {target}{near}", reason="refused")


def gone_aliases(app: "App", message: str) -> ToolFailure | None:
    """The same for an error of code that speaks of one."""
    if not app.config.aliases:
        return None
    whys = (gone_alias(app, word) for word in WORD.findall(message) if word in app.config.aliases)
    return next((why for why in whys if why), None)


def _untrusted_folder(app: "App", name: str) -> ToolFailure | None:
    """A tool of the folder that we are in, and that nobody has trusted yet."""
    waits = app.untrusted
    if waits is None or name.partition(".")[0] in app.registry.packs() or not waits.defines(name):
        return None
    return ToolFailure(f"{waits.folder} is {waits.short}", reason="refused")


def missing_server(app: "App", words: Iterable[str], message: str) -> ToolFailure | None:
    """Why a server is not there that code speaks of, and its error, too; or the folder that it would come from."""
    told = set(WORD.findall(message))
    if app.untrusted is not None:
        whys = (_untrusted_folder(app, word) for word in words if word in told)
        if why := next((why for why in whys if why), None):
            return why
    if app.servers is None:
        return None
    whys = (app.servers.missing(word) for word in words if word in told and word not in app.registry.packs())
    return next((why for why in whys if why), None)


def names_in_code(app: "App", code: str) -> set[str]:
    """What code speaks of, also by aliases and snippets."""
    words = set(WORD.findall(code))
    if app.servers is not None and app.servers.unlisted(words):  # else it does not matter what they mean there
        from onetool.script.parse import names_used_in

        used = names_used_in(code)
        words = words if used is None else used
    words |= {target.partition(".")[0] for alias, target in app.config.aliases.items() if alias in words}
    bodies = [snippet.body for name, snippet in app.config.snippets.items() if name in words]
    return words.union(*map(WORD.findall, bodies))


def with_reason(error: "ToolError", why: ToolFailure) -> "ToolError":
    """With the reason behind it, and without a guess at what else may have been meant."""
    if message_of(why) in error.message:
        return error
    message = GUESS.sub("", error.message)
    return replace(error, message=f"{message}; {message_of(why)}", reason=why.reason)
