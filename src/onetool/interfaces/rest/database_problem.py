"""What REST says when the database can't be used: 503, with a code that tells whether anything may have changed."""

from onetool.database import ChangeUnknownError, DatabaseAwayError, DatabaseError
from onetool.interfaces.rest.problem import RETRY_S, RestError


def database_problem(error: BaseException) -> RestError | None:
    """The refusal, where the database is the cause of an error; else None."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, DatabaseError):
        cause = cause.__cause__
    if cause is None:
        return None
    hints = getattr(error, "hints", ())
    return RestError(503, _code(cause), f"{error}.", headers=[(b"retry-after", b"%d" % RETRY_S)], hints=hints)


def _code(error: DatabaseError) -> str:
    if isinstance(error, DatabaseAwayError):
        return "database_away"
    return "change_unknown" if isinstance(error, ChangeUnknownError) else "database_refused"
