"""`POST /ask`: a question to the model behind this server, which may use the tools. The ASGI app of that one address.

door      a request -> `app.ask` -> the answer, or a problem           body      what a client may send
stream    the same as a stream of events; paced: no faster than the client reads
turn      one question on its way, and how its end is told             words     options, as clients know them
refusal   why there is no answer: its status, and what has been done by then
"""

PATH = "/ask"
METHODS = ("POST", "OPTIONS")
