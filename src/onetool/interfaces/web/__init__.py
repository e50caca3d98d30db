"""The page for people at `/`: static files, which talk to the server by its REST API alone.

page           the ASGI app: the page, its assets, and a short text for clients that read no HTML
static_files   the files in memory, packed once, with their media types
static/        what `make web` builds; it is committed, so that a server and the wheel need no Node
"""
