"""Starts sending traces and metrics to a collector if the config has `otel`; otherwise imports nothing."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from onetool.core.errors import ConfigError, Mistake

if TYPE_CHECKING:
    from onetool.config import Config
    from onetool.services.journal.recorder import Recorder

PACKAGES = ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http")
INSTALL = 'pip install "onetool-layer[otel]"'


def start_telemetry(config: "Config", recorder: "Recorder", replica: str | None = None) -> Callable[[], None] | None:
    """Start the export if the config has `otel`, and return a function that stops it.

    Servers call this once; changes to `otel` need a restart. Raises ConfigError if the SDK is not installed.
    """
    if (otel := config.otel) is None:
        return None
    if (missing := missing_package(config)) is not None:
        raise ConfigError([missing])
    from onetool.services.otel import OtelExporter, start_export

    return start_export(OtelExporter(otel.endpoint, otel.headers, otel.service, replica), recorder)


def missing_package(config: "Config") -> Mistake | None:
    """Return a mistake if the config has `otel` and a required package is not installed. Imports nothing."""
    if config.otel is None:
        return None
    from importlib.util import find_spec

    for name in PACKAGES:
        try:
            found = find_spec(name)
        except ModuleNotFoundError:  # a parent package is missing
            found = None
        if found is None:
            message = f"otel needs a package that is not installed: {name}"
            return Mistake(message=message, file=str(config.path) if config.path else None, key="otel", hint=INSTALL)
    return None
