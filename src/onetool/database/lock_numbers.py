"""Numbers of advisory locks (`pg_advisory_xact_lock`), in one table: each means one thing in the whole database.

A number never changes: replicas of another version use the same ones.
"""

from typing import Final

MIGRATIONS: Final = 7_307_199_513_280_411  # one replica makes tables at a time
STATS_SWEEP: Final = 7_307_199_513_280_412
STATS_IMPORT: Final = 7_307_199_513_280_413
RESULTS_ROOM: Final = 7_307_199_513_280_503  # one replica makes room at a time
AUDIT_APPEND: Final = 7_307_199_513_280_505  # one appends at a time
AUDIT_SWEEP: Final = 7_307_199_513_280_506
