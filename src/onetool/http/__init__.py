"""The HTTP client, and HTTP tools: a template and the arguments of a call become a request, its response a value.

    args + secrets -> template -> checked URL -> checked address -> request -> (again, if that is safe) -> value

A caller chooses values, never where they go: scheme, host and port stand in the template, and both the name and the
address that it resolves to have to be allowed.

What servers need is here, too: `asgi` has the types of ASGI and bodies, `response_stream` responses.
"""
