"""`onetool serve --workers N`: a supervisor binds the sockets and keeps N processes that serve on them.

supervisor   starts the workers, replaces those that die, passes on signals
worker       the program of a worker
channel      what the two tell each other, over an inherited pair of sockets
"""
