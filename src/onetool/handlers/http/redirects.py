"""Where an answer sends us on to, and what goes there: to another origin nothing that could be secret."""

from typing import TYPE_CHECKING
from urllib.parse import urljoin

from onetool.handlers.http.refusal import Refusal
from onetool.handlers.http.url import parse_url
from onetool.handlers.http.wire import Answer

if TYPE_CHECKING:
    from onetool.handlers.http.outgoing import Outgoing

MOST_HOPS = 5
REDIRECTS = frozenset((301, 302, 303, 307, 308))
HARMLESS = frozenset(("accept", "accept-language", "user-agent"))  # headers that any origin may see
OF_BODY = frozenset(("content-type", "content-encoding", "content-language"))


def next_hop(outgoing: "Outgoing", answer: Answer) -> "Outgoing | None":
    """The request to send next; None where the answer sends us nowhere. Whether it may go there is not asked here."""
    location = answer.headers.get("location", "").strip()
    if answer.status not in REDIRECTS or not location:
        return None
    here = outgoing.url
    try:
        there = parse_url(urljoin(here.text, location))
    except (Refusal, ValueError) as error:
        raise Refusal(f"{here.authority} redirects to something that can't be called: {error}") from None
    method, body, headers = outgoing.method, outgoing.body, outgoing.headers
    if (answer.status == 303 and method != "HEAD") or (answer.status in (301, 302) and method == "POST"):
        method, body = "GET", b""
        headers = [header for header in headers if header[0].lower() not in OF_BODY]
    if there.origin != here.origin:
        if body or method not in ("GET", "HEAD", "OPTIONS"):
            raise Refusal(
                f"{here.authority} redirects a {method} to {there.authority}: it is not sent to another origin"
            )
        headers = [header for header in headers if header[0].lower() in HARMLESS]
    return outgoing._replace(method=method, url=there, headers=headers, body=body)
