"""The REST API: bundles and their tools below /tools, any tool below /call, a model at /ask, and code at /run.

Who may use it is decided in interfaces/http.

app        the ASGI app of all routes           routing    addresses, methods, query parameters
handlers   bundles and tools; lists in pages    invoke     calling a tool, also as a stream of events
request    bodies, ETags, the caller            problem    errors as application/problem+json
call       the ASGI app below /call: tools by their names
ask_app    the ASGI app at /ask                 ask_body   what it takes, and its problems
openapi    /openapi.json                        docs       /docs, the same for people

status     the ASGI app at /status             events     the ASGI app at /events
drafts     checks and previews                  insight    the usage of a tool, and of all
examples   the examples of a tool

run        code: running and checking it       servers    how MCP servers are doing
results    large results that were stored       checks     what is wrong, and whether a project is trusted

light_list fields, ETag and gzip of lists       editing    copying and renaming a tool
imports    ZIP, curl and OpenAPI in, ZIP out    admin      what starts code: servers, approving, trust
"""

from onetool.interfaces.rest.app import RestApp
from onetool.interfaces.rest.call import CallApp
from onetool.interfaces.rest.problem import problem_body
from onetool.interfaces.rest.routing import check_route

__all__ = ["CallApp", "RestApp", "check_route", "problem_body"]
