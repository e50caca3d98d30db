"""The MCP server: our tools for any client that speaks the Model Context Protocol.

wire        bytes <-> JSON-RPC messages, and the errors that it knows
revisions   the revisions of the protocol, and the words that they share
client      what is known of whoever sent a message
caller      the client, as the call that it made sees it: progress, logging, questions
questions   a question of a tool as the protocol asks it, and the answer back
errands     calls that pause for an answer, or outlast the request that began them
menus/      what a client is shown: one tool `run`, `search` and `call`, or every tool
prompts, resources, completion, changes, news   the rest of what a client can ask for; paging: long lists
pausing     running what may ask, or take long
service     what all methods share; server: method -> what happens; request: one of them on its way
conversation   messages of one client that belong together; stdio: a pipe of them
http        the way in over HTTP: alone (requests that stand alone), in_session and sessions (those before 2026-07-28),
            exchange, headers (what both share)

Written on our own: the official SDK is the client in our tests (see docs/decisions/0011).
"""
