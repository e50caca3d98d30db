"""Starts to send traces and metrics to a collector, where the config has `otel`. Else nothing is imported for it."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from onetool.core.errors import ConfigError, Mistake

if TYPE_CHECKING:
    from onetool.app.app import App

INSTALL = 'pip install "onetool-layer[otel]"'


def start_telemetry(app: "App", replica: str | None = None) -> Callable[[], None] | None:
    """Start the export if the config has `otel`, and return a function that ends it.

    Servers call this once; what a reload changes about `otel` counts after a restart. Raises ConfigError if the SDK is
    not installed.
    """
    if (otel := app.config.otel) is None:
        return None
    try:
        from onetool.services.otel import OtelExporter, start_export
    except ImportError as error:
        message = f"otel needs a package that is not installed: {error.name}"
        file = str(app.config.path) if app.config.path else None
        raise ConfigError([Mistake(message=message, file=file, key="otel", hint=INSTALL)]) from None
    return start_export(OtelExporter(otel.endpoint, otel.headers, otel.service, replica), app.runtime.recorder)
