"""The REST door: bundles and their tools under /tools, as an ASGI app. Whoever comes here has passed interfaces/http.

door       the ASGI app: a request -> its handler -> the answer, or a problem; asking: what these are
places     which addresses there are, and what each takes          query     what may stand behind the `?`
payload    bodies in and out: strict JSON                           tags      ETag, If-Match, If-None-Match
pages      page tokens: opaque, sealed, good for one query          problem   refusals as application/problem+json
bundles, tools, invoke    the handlers                              events    an invocation as a stream of events
watch      a client that leaves                                     caller    to whom stored results belong
ask/       a model that has the tools, at /ask
openapi/   the API's description of itself                          docs/     the same for people, as one page
"""

from onetool.interfaces.rest.door import Rest, rest
from onetool.interfaces.rest.places import finds
from onetool.interfaces.rest.problem import told

__all__ = ["Rest", "finds", "rest", "told"]
