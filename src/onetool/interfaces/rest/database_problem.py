"""What REST says when the database can't be reached: 503, with a code that tells whether anything may have changed."""

from onetool.database import ChangeUnknownError, DatabaseAwayError
from onetool.interfaces.rest.problem import RETRY_S, RestError


def database_problem(error: BaseException) -> RestError | None:
    """The refusal, where the database is the cause of an error; else None."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, DatabaseAwayError | ChangeUnknownError):
            code = "database_away" if isinstance(cause, DatabaseAwayError) else "change_unknown"
            hints = getattr(error, "hints", ())
            return RestError(503, code, f"{error}.", headers=[(b"retry-after", b"%d" % RETRY_S)], hints=hints)
        cause = cause.__cause__
    return None
