"""A pack's own settings and secrets, and its progress: found through the call that is running."""

import os
from collections.abc import Mapping
from typing import Any

from onetool.core.context import current_call


def get_config() -> Mapping[str, Any]:
    """The settings of the pack that is running: `settings: {<pack>: …}` in the config. Empty when there are none."""
    context = current_call.get()
    if context is None or context.environment is None:
        return {}
    return context.environment.settings(context.spec.settings_of or context.spec.pack)


def get_secret(name: str) -> str | None:
    """A secret by name, from the app's secrets or the environment; None when there is none."""
    context = current_call.get()
    if context is None or context.environment is None:
        return os.environ.get(name)
    return context.environment.secret(name)


def report_progress(done: float, total: float | None = None, message: str | None = None) -> None:
    """Tell whoever called the running tool how far it has come. Without a listener nothing happens."""
    context = current_call.get()
    if context is None or context.progress is None:
        return
    if message is not None and context.environment is not None:
        message = context.environment.redact(message)
    context.progress(done, total, message)
