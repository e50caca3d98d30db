"""Results that are too large to send whole: kept for a while behind a handle, and read page by page."""

from onetool.services.results.errors import HandleNotFoundError as HandleNotFoundError
from onetool.services.results.errors import NotStoredError as NotStoredError
from onetool.services.results.errors import ResultExpiredError as ResultExpiredError
from onetool.services.results.errors import ResultTooLargeError as ResultTooLargeError
from onetool.services.results.query import Page as Page
from onetool.services.results.query import fitting as fitting
from onetool.services.results.query import is_page as is_page
from onetool.services.results.store import Results as Results
from onetool.services.results.store import Stored as Stored
