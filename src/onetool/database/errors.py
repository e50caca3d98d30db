"""What can go wrong with a database, in words for those who call."""

from onetool.core.errors import OneToolError


class DatabaseError(OneToolError):
    """The database refused something, or can't be used. No message has its address: that may hold a password.

    `reason` is that of a tool's failure, where a tool lets it through.
    """

    reason: str | None = None


class DatabaseAwayError(DatabaseError):
    """Nobody reaches the database now. Nothing has changed. Callers read this: it does not say `why`, which is for the
    log of the server and names its host and role.
    """

    reason = "database_away"

    def __init__(self, why: str = "") -> None:
        super().__init__("the database can't be reached; nothing has changed, try again")
        self.why = why


class TablesMissingError(DatabaseError):
    """The database is reached, and does not have the tables that this version needs."""

    def __init__(self, missing: list[str], has_none: bool) -> None:
        super().__init__(
            "the database has no tables: run `onetool db init`"
            if has_none
            else f"the database lacks tables of this version ({', '.join(missing)}): run `onetool db migrate`"
        )


class ChangeUnknownError(DatabaseError):
    """The connection was lost while a change was being confirmed: it may have happened. Repeating it is safe."""

    reason = "change_unknown"

    def __init__(self) -> None:
        super().__init__(
            "the connection to the database was lost while the change was being written: "
            "nobody knows whether it happened; read it again, or repeat it"
        )
