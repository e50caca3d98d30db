"""Files of older versions. Each step makes of a file's data what the next version would have. Nothing is written: a
file becomes one of today when somebody changes what it says.
"""

from collections.abc import Callable
from typing import Any

from onetool.sources.bundles.errors import Invalid
from onetool.sources.bundles.model import SCHEMA_VERSION

Data = dict[str, Any]
Step = Callable[[str, Data], Data]
"""Gets what it is ("bundle", "tool" or "overlay") and its data; gives new data, with the next `schemaVersion`."""

STEPS: dict[str, Step] = {}
"""From which version. There has been one version so far."""


def migrated(kind: str, data: Data) -> Data:
    """Who writes by hand may leave the version out: it is today's."""
    version = str(data.get("schemaVersion", SCHEMA_VERSION))
    while version != SCHEMA_VERSION:
        step = STEPS.get(version)
        if step is None:
            raise Invalid(_unknown(version), "/schemaVersion")
        data = step(kind, data)
        version = str(data["schemaVersion"])
    return data


def _unknown(version: str) -> str:
    if version.isascii() and version.isdigit() and int(version[:9]) > int(SCHEMA_VERSION):
        return (
            f"/schemaVersion: it is of version {version[:9]}, and this OneTool knows versions up to {SCHEMA_VERSION}; "
            "a newer OneTool has written it: update this one"
        )
    return f"/schemaVersion: there is no version {version!r:.40}; today's is {SCHEMA_VERSION!r}"
