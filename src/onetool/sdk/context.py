"""A pack's own settings and secrets, found through the call that is running."""

import os
from collections.abc import Mapping
from typing import Any

from onetool.core.context import current_call


def get_config() -> Mapping[str, Any]:
    """The settings of the pack that is running: `settings: {<pack>: …}` in the config. Empty when there are none."""
    context = current_call.get()
    if context is None or context.environment is None:
        return {}
    return context.environment.settings(context.spec.pack)


def get_secret(name: str) -> str | None:
    """A secret by name, from the app's secrets or the environment; None when there is none."""
    context = current_call.get()
    if context is None or context.environment is None:
        return os.environ.get(name)
    return context.environment.secret(name)
