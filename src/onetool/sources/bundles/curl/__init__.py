"""curl commands, as people paste them, -> HTTP tools: `from_curl`. Nothing is run or called.

words         what bash would make of the text      command    what curl would make of the words
credentials   what is a secret                      filling    arguments and placeholders
bodies        pairs and bodies as templates         tool       the tool
"""

from onetool.sources.bundles.curl.tool import FromCurl, from_curl

__all__ = ["FromCurl", "from_curl"]
