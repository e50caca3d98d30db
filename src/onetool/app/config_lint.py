"""Finds keys of a config that have no effect; `onetool check` prints them."""

import os
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

from onetool.config.files import roots_within
from onetool.core.errors import Mistake

if TYPE_CHECKING:
    from onetool.config import Config
    from onetool.sources.packs import Registry


def lint_config(config: "Config", registry: "Registry", waiting: Collection[str]) -> list[Mistake]:
    """`waiting` are packs of servers, whose tools may not be known yet."""
    return [
        *_settings(config, registry),
        *_roots(config),
        *_topics(config),
        *_instructions(config, registry, waiting),
        *_aliases(config, registry, waiting),
        *_hosts(config),
        *_asked_with(config, registry, waiting),
    ]


def _settings(config: "Config", registry: "Registry") -> list[Mistake]:
    """Settings that nothing reads: for packs that are not there, most likely a typo, or in the wrong place."""
    known = registry.packs() if config.settings else ()
    wrong = {name: "no pack has this name" for name in config.settings if name not in known}
    if "roots" in config.settings.get("fs", {}):
        wrong["fs.roots"] = "the folders of fs have a key of their own: fs: {roots: […]}"
    return [
        Mistake(message=message, file=str(config.path), key=f"settings.{name}", severity="warning")
        for name, message in wrong.items()
    ]


def _roots(config: "Config") -> list[Mistake]:
    """Folders that a project may not lend: what counts is where they are when they are opened."""
    within = roots_within(config)
    if within is None:
        return []
    allowed = [Path(os.path.realpath(folder)) for folder in within]
    return [
        Mistake(
            message=f"{root} lies outside of the project, so that fs does not open it",
            file=str(config.path),
            key=f"fs.roots[{number}]",
            hint="the person can allow it in fs.roots of ~/.onetool/onetool.yaml, or name this config with --config",
            severity="warning",
        )
        for number, root in enumerate(config.fs.roots)
        if not any(Path(os.path.realpath(root)).is_relative_to(folder) for folder in allowed)
    ]


def _topics(config: "Config") -> list[Mistake]:
    """Files that can't be written: what counts is how they are opened, but a person should hear of it before."""
    if not config.topics:
        return []
    beside = config.beside
    roots = [Path(os.path.realpath(root)) for root in (beside, *config.fs.roots)]
    return [
        Mistake(
            message=f"{topic.file} is neither beside the config nor in fs.roots, so that nothing can be written to it",
            file=str(config.path),
            key=f"topics[{number}].file",
            severity="warning",
        )
        for number, topic in enumerate(config.topics)
        if not any(Path(os.path.realpath(topic.file)).is_relative_to(root) for root in roots)
    ]


def _instructions(config: "Config", registry: "Registry", waiting: Collection[str]) -> list[Mistake]:
    """Instructions of missing packs."""
    if not config.texts.packs:
        return []
    from onetool.core.text import did_you_mean

    known = {*registry.packs(), *waiting}
    return [
        Mistake(
            message="no pack has this name",
            file=str(config.prompts),
            key=f"packs.{name}",
            hint=did_you_mean(name, known),
            severity="warning",
        )
        for name in config.texts.packs
        if name not in known
    ]


def _hosts(config: "Config") -> list[Mistake]:
    """Entries of allowedHosts that allow nothing."""
    if not config.allowed_hosts:
        return []
    from onetool.http.allowed_hosts import AllowedHosts, HostRule

    return [
        Mistake(message=why, file=str(config.path), key=f"allowedHosts[{number}]", severity="warning")
        for number, one in enumerate(config.allowed_hosts)
        for why in AllowedHosts([HostRule(one.host, one.allow_private)]).mistakes
    ]


def _asked_with(config: "Config", registry: "Registry", waiting: Collection[str]) -> list[Mistake]:
    """Names in ask.tools that no tool has."""
    from onetool.core.text import did_you_mean

    named = [name for name in config.ask.tools or () if name.partition(".")[0] not in waiting]
    return [
        Mistake(
            message=f"no tool is called {name}",
            file=str(config.path),
            key="ask.tools",
            hint=did_you_mean(name, registry.names()),
            severity="warning",
        )
        for name in registry.unmatched(named)
    ]


def _aliases(config: "Config", registry: "Registry", waiting: Collection[str]) -> list[Mistake]:
    """Aliases of tools that are not there, or that something else is called."""
    if not config.aliases:
        return []
    from onetool.core.text import did_you_mean
    from onetool.script.names import ScriptNames

    targets = {name: to for name, to in config.aliases.items() if to.partition(".")[0] not in waiting}
    return [
        Mistake(
            message=why,
            file=str(config.path),
            key=f"aliases.{alias}",
            hint=did_you_mean(targets[alias], registry.names()) if targets[alias] in why else None,
            severity="warning",
        )
        for alias, why in ScriptNames(registry.snapshot(), targets).useless.items()
    ]
