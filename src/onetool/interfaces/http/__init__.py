"""The HTTP server behind `onetool serve`: raw ASGI on uvicorn, without a web framework, to keep each call cheap.

serve           from a config to a running server; the routes of an app
listen          resolves the host and binds the sockets
server          uvicorn, signals and a clean stop
connection      limits for one client's connection: time, size, number
app             the ASGI app: checks, body limits, access log, then the route
rules           Host, Origin, Sec-Fetch-Site, token and CORS
credentials     who a request comes from, and whether it is still let in
request_log     the access log, and what the audit log says of requests
login           the route /login
login_sessions  the sessions of people who have signed in
welcome         how to connect a client: on the terminal, and at `/` for clients like curl
"""
