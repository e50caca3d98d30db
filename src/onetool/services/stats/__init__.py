"""What was called, how often, how it went, and what it weighed. Kept in SQLite, so that processes can share one file.

recording   Stats: what it is told of calls, runs, menus and waiting times becomes rows, without any value
sizes       how large a value is
writer      rows that wait, and the thread that writes them
tables      the file
summing     what a period comes to (periods, spread); savings: the two formulas; shapes: what comes out
report…     the same as one HTML page
"""

from onetool.services.stats.periods import PERIODS
from onetool.services.stats.recording import Stats
from onetool.services.stats.shapes import Bucket, Count, ErrorRow, Summary, ToolRow
from onetool.services.stats.sizes import size_of

__all__ = ["PERIODS", "Bucket", "Count", "ErrorRow", "Stats", "Summary", "ToolRow", "size_of"]
