"""Where the audit log is: in a folder of the state, or in the database that replicas share."""

from collections.abc import Callable
from pathlib import Path

from onetool.database import Database
from onetool.services.audit.files import AuditFiles
from onetool.services.audit.reader import AuditReader
from onetool.services.audit.reading import AuditFolder
from onetool.services.audit.storage import AuditSettings, AuditStorage
from onetool.services.audit.table import AuditTable, AuditTableWriter

AuditPlace = Path | Database


def storage_in(place: AuditPlace, settings: AuditSettings, clock: Callable[[], float]) -> AuditStorage:
    """What appends to the log there."""
    return AuditFiles(place, settings, clock) if isinstance(place, Path) else AuditTableWriter(place, settings)


def reader_of(place: AuditPlace) -> AuditReader:
    """What reads the log there."""
    return AuditFolder(place) if isinstance(place, Path) else AuditTable(place)
