"""Starts to send traces and metrics to a collector, where the config has `otel`. Else nothing is imported for it."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from onetool.core.errors import ConfigError, Mistake

if TYPE_CHECKING:
    from onetool.app.app import App

INSTALL = 'pip install "onetool-layer[otel]"'


def export_telemetry(app: "App", replica: str | None = None) -> Iterator[Callable[[], None]]:
    """Yield a function that ends the export, where there is one. Raises ConfigError if the SDK is not installed.

    Servers call this once; what a reload changes about `otel` counts after a restart.
    """
    if (settings := app.config.otel) is None:
        return
    try:
        from onetool.services.otel import start_export
    except ImportError as error:
        message = f"otel needs a package that is not installed: {error.name}"
        file = str(app.config.path) if app.config.path else None
        raise ConfigError([Mistake(message=message, file=file, key="otel", hint=INSTALL)]) from None
    yield start_export(settings, app.runtime.recorder, replica)
