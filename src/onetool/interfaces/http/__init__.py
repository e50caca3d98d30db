"""The HTTP server behind `onetool serve`: raw ASGI on uvicorn, without a web framework, to keep each call cheap.

serve           from a config to a running server; the routes of an app
listen          resolves the host, binds the sockets, and says how to connect a client
server          uvicorn, signals and a clean stop
connection      limits for one client's connection: time, size, number
app             the ASGI app: checks, access log, then the route
exchange        one request and its response; limits for bodies: size, memory, one large one of a caller at a time
rules           Host, Origin, Sec-Fetch-Site, token and CORS
credentials     who a request comes from, and whether it is still let in
jwt_token       what clients hear without a JWT, or with a wrong one; jwt_verifier: who a JWT belongs to
request_log     the access log, and what the audit log says of requests
metrics         the route /metrics
login           the route /login
login_sessions  the sessions of people who have signed in
mount           the same routes in somebody's web app
"""
