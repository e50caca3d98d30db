"""The HTTP server behind `onetool serve`: uvicorn, one guard, Starlette's routes, and raw ASGI apps below them.

serve           starts a server from a config
site            the routes of an app, and the credentials it accepts
listen          resolves the host and binds the sockets
server          uvicorn, signals and a clean stop
workers         the processes of `serve --workers`
heads           limits for the head of a request: time and size
guard           the ASGI app: every check of a request in one order, limits for bodies, then the route
rules           Host, Origin, Sec-Fetch-Site, token and CORS
credentials     authenticates requests; admissions: ends those whose caller lost access
jwt_token       responses to a missing or invalid JWT; jwt_verifier: checks JWTs
request_log     the access log, and records of requests in the audit log
metrics         the route /metrics
login           the route /login
login_sessions  the sessions of signed-in people
mount           the same routes inside another web app
"""
