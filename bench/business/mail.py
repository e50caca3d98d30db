"""Mail in the name of the company."""

from onetool.sdk import tool


@tool
def send(to: list[str], subject: str, text: str, attachments: list[str] | None = None) -> dict:
    """Send a mail.

    At most 20 recipients; more is a mailing and needs a template. Mails to customers leave between 8 and 20 o'clock,
    others at once. Attachments are ids of files, 10 MB in all.

    Returns:
        {id, leaves}
    """
    return {"id": "x1", "leaves": "2026-11-19T10:00:00Z"}


@tool(read_only=True)
def search(query: str, since: str = "", limit: int = 20) -> list[dict]:
    """Find mails by words in subject, text and addresses, the newest first.

    Returns:
        A list of {id, sender, to, subject, at, excerpt}.
    """
    return [{"id": "x1", "sender": "a@example.com", "subject": "Tea"}]


@tool(read_only=True)
def read(id: str) -> dict:
    """Read a mail. The text has no formatting; what was quoted is left out.

    Returns:
        {id, sender, to, subject, at, text, attachments}
    """
    return {"id": id, "text": "Tea, please."}
