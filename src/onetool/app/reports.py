"""Reports into files below the folders that tools may use.

A model chooses the name, so that it can only make new files, or write over reports: nobody loses a page of his own.
"""

from typing import TYPE_CHECKING

from onetool.core.errors import ToolFailure

if TYPE_CHECKING:
    from onetool.app.app import App
    from onetool.services.stats import Summary

SUFFIXES = (".html", ".htm")
BEGINNING = 1_000  # bytes in which a report says that it is one


def write_report(app: "App", path: str, stats: "Summary") -> str:
    """Where it was written, or ToolFailure."""
    from onetool.services.confined import Refused, Roots, why_not_written
    from onetool.services.stats.report import MARK, report

    if not path.lower().endswith(SUFFIXES):
        raise ToolFailure("the name of a report ends with .html")
    roots = Roots(app.config.fs.roots, app.unwritable, within=app.settings("fs")["within"])
    try:
        if MARK.encode() not in roots.read_file(path, BEGINNING).data:
            raise ToolFailure("there is a file of that name that is no report; choose another name")
    except Refused as refused:
        if refused.reason != "not_found":
            raise ToolFailure(why_not_written(refused, path, roots.paths)) from None
    try:
        roots.write_file(path, report(stats).encode())
    except Refused as refused:
        raise ToolFailure(why_not_written(refused, path, roots.paths)) from None
    return path
