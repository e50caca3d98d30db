"""What went wrong on the way to a web server: the SDK says only that something did."""


class Trouble:
    """The last of it, of one call, or of a connection where no call is under way."""

    def __init__(self) -> None:
        self.words: str | None = None
        self.status: int | None = None
        self.said = ""  # the first line of the answer, where it says why
        self.was_unheard = False  # before a byte of the request had left

    def failed(self, error: Exception, unheard: bool) -> None:
        self.status, self.said = None, ""
        self.was_unheard = unheard
        what = "it can not be reached" if unheard else "the connection broke"
        self.words = f"{what}: {str(error) or type(error).__name__}"

    def answered(self, status: int, reason: str, said: str = "") -> None:
        self.was_unheard = False
        self.status, self.said = status, said
        told = f"it answers {status} {reason}".strip()
        self.words = None if status < 400 else f"{told}: {said}" if said else told

    def refused(self, what: str) -> None:
        """What it answered was not taken."""
        self.words = f"its answer {what}"
