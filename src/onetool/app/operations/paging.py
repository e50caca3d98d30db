"""Tokens of the pages of lists.

A token has the position where a list continues, in JSON, with an HMAC-SHA256 over the query (without `pageToken` and
the page size) and the position. So a token can't be forged, and is valid only for the same query of the same list.
"""

from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from onetool.core.signed import sign, verify
from onetool.sources.bundles.errors import InvalidError

if TYPE_CHECKING:
    from onetool.app.operations import At
    from onetool.app.operations.fields import Query

T = TypeVar("T")
MAX_TOKEN = 4096
_UNBOUND = ("page_token", "page_size", "recommended_page_size")


def page_token(at: "At", query: "Query", position: Any) -> str | None:
    """Return the token for the page after this position; None if there is no such page."""
    return None if position is None else sign(at.app.bundles.key(), msgspec.json.encode(position), _bound(query))


def read_page_token(at: "At", query: Any, position_type: type[T]) -> T | None:
    """Return the position in a query's token. Raises InvalidError for a token of another query or version."""
    if (token := query.page_token) is None:
        return None
    data = verify(at.app.bundles.key(), token, _bound(query)) if len(token) <= MAX_TOKEN else None
    try:
        return msgspec.json.decode(data or b"", type=position_type)
    except msgspec.DecodeError:
        raise bad_page_token() from None


def bad_page_token() -> InvalidError:
    what = "use the nextPageToken of the previous page with the same query, or begin without one"
    return InvalidError(what, "/pageToken", "bad_page_token")


def _bound(query: "Query") -> bytes:
    """Return the list and query that a token is bound to. The order of tags does not matter."""
    given = msgspec.structs.asdict(query).items()
    bound = {
        name: sorted(value) if isinstance(value, tuple) else value for name, value in given if name not in _UNBOUND
    }
    valid_for = msgspec.json.encode([type(query).__name__, bound], order="deterministic")
    return b"page:%d:" % len(valid_for) + valid_for
