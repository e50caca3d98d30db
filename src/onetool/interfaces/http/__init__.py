"""The HTTP face: `onetool serve`. Raw ASGI, because every layer between a socket and a tool is paid for by each call.

From the outside in:

    start        from a config to a server that runs
    listen       which addresses and port; the sockets
    server       uvicorn around it all: signals, a clean stop
    connection   one client's connection: what it may take is bounded
    site         what every request passes, once and in order, before it comes to its route
    rules        Host, Origin, token: who may talk to this server at all; authority: how hosts and origins are read
    foreign      pages of other origins, which get nothing; cors: those of the config, which may read our answers
    body         how much a request may carry, and which have to say that it is JSON
    access       one log line a request
    routes       the routes of an app; page: what a browser sees; greeting: what somebody sees who starts the server
    asgi         the shapes of ASGI, and answers in JSON
"""
