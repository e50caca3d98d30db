"""AuditStorage: what appends lines to the audit log, in files or in a database."""

from collections.abc import Sequence
from typing import Protocol


class AuditSettings(Protocol):
    """The config's section `audit`."""

    @property
    def mode(self) -> str: ...

    @property
    def retention_days(self) -> int: ...

    @property
    def max_mb(self) -> int: ...


class AuditStorage(Protocol):
    """Called by one thread at a time."""

    settings: AuditSettings

    def describe(self) -> str:
        """Where the log is, for messages."""
        ...

    def append(self, lines: Sequence[bytes]) -> tuple[int, OSError | None]:
        """Append whole lines; gives how many were written, and why the others were not.

        Those that were not may be given again, as the first ones: a line whose writing nobody could confirm is there
        once then.
        """
        ...

    def key(self) -> bytes:
        """The key of the hashes. It is made where there is none. Raises OSError."""
        ...

    def sweep(self) -> None:
        """Remove what is older than the retention. Raises OSError."""
        ...
