"""How often a request may be sent, and how long all of that may take: read off what a tool says of itself.

Apart from what sends it: whoever only lists tools needs no more than this.
"""

from onetool.handlers.http.impl import HttpImpl, Limits, OAuth2, Request

IDEMPOTENT = frozenset(("GET", "HEAD", "PUT", "DELETE", "OPTIONS"))
FIRST_PAUSE = 0.25  # seconds at most before the second try; twice as many before the next one …
LONGEST_PAUSE = 8.0  # … up to this
TOKEN_SECONDS = 15.0  # that fetching a token may take
LONGEST_TOTAL = 900.0  # seconds over all tries, where a single one does not take longer
AROUND = 1.0  # seconds for what is no sending: filling in, selecting


def may_repeat(request: Request) -> bool:
    """Whether sending it twice does no harm."""
    return request.method in IDEMPOTENT if request.idempotent is None else request.idempotent


def tries(request: Request, limits: Limits) -> int:
    """How often it is sent at most."""
    retries = request.retries if limits.max_retries is None else min(request.retries, limits.max_retries)
    return 1 + (retries if may_repeat(request) else 0)


def longest_pause(number: int) -> float:
    """Seconds at most after try `number`, where no server asks for more."""
    return min(FIRST_PAUSE * 2 ** (number - 1), LONGEST_PAUSE)


def sending_seconds(impl: HttpImpl, limits: Limits) -> float:
    """For all tries and what is between them."""
    request = impl.request
    number, seconds = tries(request, limits), request.timeout_ms / 1000
    token = TOKEN_SECONDS if isinstance(request.auth, OAuth2) else 0
    total = seconds * number + sum(map(longest_pause, range(1, number))) + token
    return min(total, max(LONGEST_TOTAL, seconds))


def total_seconds(impl: HttpImpl, limits: Limits) -> float:
    """That a call may take."""
    return sending_seconds(impl, limits) + AROUND
