"""The HTTP face: `onetool serve`. Raw ASGI, because every layer between a socket and a tool is paid for by each call.

listen       which addresses and port; the sockets
connection   one client's connection: heads, bodies and patience are bounded
server       uvicorn around it: signals, a clean stop
site         what every request passes, once and in order, and the routes
rules        Host, Origin, token: who may talk to this server at all
body         how much a request may carry
access       one log line a request; patient_log: lines that never hold up the server
page         what a browser sees; greeting: what somebody who starts the server sees
asgi         the shapes of ASGI, and answers in JSON
"""
