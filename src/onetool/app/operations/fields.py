"""The types of operations' fields that several operations share.

A field of a query or a body is a query parameter, a key in JSON and an option of the command. `Meta` describes it;
`extra` is for queries and commands: `SPLIT` splits each value at commas, `complete` names the completion of the values
(`tool` or `tools`), and `metavar` is the placeholder in the help of the option.
"""

from typing import Annotated

import msgspec
from msgspec import Meta

from onetool.sources.bundles.names import ID_SCHEMA

MAX_PER_PAGE = 1000
PER_PAGE = 100
MAX_SEARCH = 1000  # characters
MAX_IN_LIST = 1000
MAX_URL = 4000  # characters
SPLIT = {"split": True}


class Query(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """The query of a route. Lists are repeated parameters; with SPLIT, also one parameter with commas."""


Words = Annotated[str, Meta(max_length=MAX_SEARCH)]
Url = Annotated[str, Meta(max_length=MAX_URL, extra_json_schema={"pattern": "^[hH][tT][tT][pP][sS]?://"})]
Texts = Annotated[tuple[Annotated[str, Meta(min_length=1, max_length=MAX_SEARCH)], ...], Meta(max_length=MAX_IN_LIST)]
BundleIds = Annotated[
    tuple[Annotated[str, Meta(extra_json_schema={"pattern": "^{0}(,{0})*$".format(ID_SCHEMA["pattern"][1:-1])})], ...],
    Meta(max_length=MAX_IN_LIST, extra=SPLIT, description="Only these bundles: `bundleIDs=…&bundleIDs=…` or `…,…`."),
]
IncludeDisabled = Annotated[bool, Meta(description="Include disabled items.")]
PageSize = Annotated[int, Meta(ge=1, le=MAX_PER_PAGE, description="Maximum number of items.")]
PageToken = Annotated[
    str | None,
    Meta(
        description="`nextPageToken` of the previous page with the same query.",
        extra_json_schema={"pattern": "^[A-Za-z0-9_-]+$"},
    ),
]
Search = Annotated[
    str,
    Meta(
        max_length=MAX_SEARCH,
        description="The text to find: prefixes of names, whole words, or similar words. Empty: everything, newest "
        "first.",
        examples=["forecast"],
    ),
]

ToolName = Annotated[
    Words | None, Meta(description="Only calls of this tool.", examples=["time.now"], extra={"complete": "tool"})
]


class Input(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """The body of an operation."""


class DryRun(Query, frozen=True):
    """The query of a change that can be tried."""

    dry_run: Annotated[bool, Meta(description="Change nothing; the response is that of the real request.")] = False


class Pages(Query, frozen=True):
    """The query of a list in pages."""

    page_size: PageSize = PER_PAGE
    page_token: PageToken = None
