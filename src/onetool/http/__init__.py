"""The HTTP client, and HTTP tools: a template and the arguments of a call become a request, its response a value.

    args + secrets -> template -> checked URL -> checked address -> request -> (again, if that is safe) -> value

Callers choose values, never the destination: the template fixes scheme, host and port, and both the name and the
address that it resolves to must be allowed.

Shared parts of servers are here, too: `asgi` has the ASGI types and request bodies, `response_stream` responses.
"""
