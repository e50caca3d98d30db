"""Makes `old_journal.db.gz` and `journal_figures.json.gz` with the version of commit a3b9da9b: run it with that
version's `src` and this folder's `../services` on PYTHONPATH, and name a new folder.
"""

# ruff: noqa: I001 - the modules of that version aren't here
import gzip
import json
import sys
from pathlib import Path

from journal_feed import KEY, NOW, feed, figures, namespace
from onetool.services.audit import AuditLog, AuditTable
from onetool.services.audit.record import AuditFilter
from onetool.services.stats.report import report
from onetool.services.stats.usage import StatsFilter

from onetool.config.model import AuditConfig
from onetool.database.sqlite import SqliteDatabase
from onetool.services.metrics import Metrics, exposition
from onetool.services.stats import UsageStats

folder, now = Path(sys.argv[1]), [0.0]
folder.mkdir()
place = SqliteDatabase(folder / "state.db")
place.write(lambda work: work.execute("UPDATE audit_key SET key = %s", (KEY,)))
stats = UsageStats(place, now=lambda: now[0], retention_days=3650)
log = AuditLog(place, AuditConfig(retention_days=3650), lambda: now[0])
metrics = Metrics()
for now[0], what, args in feed():
    if what == "call":
        if args[0].source != "draft":
            stats.record(args[0])
        log.record_event(args[0])
        metrics.observe(args[0])
    elif what == "run":
        stats.record_run(args[0])
        log.record_event(args[0])
        metrics.observe(args[0])
    elif what == "reply":
        stats.record_reply(*args)
    elif what == "menu":
        stats.record_menu(*args)
    elif what == "wait":
        stats.record_gap(*args)
    else:
        log.record(args[0], args[1], **args[2])
log.close()
stats.flush()
now[0] = NOW
shown = figures(
    stats,
    lambda wanted: AuditTable(place).page(wanted, 1000).records,
    exposition({"": metrics.families()}).decode().splitlines(),
    namespace(AuditFilter=AuditFilter, StatsFilter=StatsFilter, report=report),
)
(folder / "journal_figures.json.gz").write_bytes(gzip.compress(json.dumps(shown, ensure_ascii=False).encode()))
place.shrink()
place.close()
(folder / "old_journal.db.gz").write_bytes(gzip.compress((folder / "state.db").read_bytes()))
