"""The MCP server: serves the tools of an app to any client of the Model Context Protocol.

    client         a client and one request of it; progress, log messages and questions; lists in pages
    methods        the methods: tools, tasks, the handshake; service: the state that they share
    offers         the methods of prompts and resources; content: results as content blocks
    menus          what tools/list shows: `run` alone; `search`, `call` and `run`; or every tool
    pending_calls  calls that pause for an answer, and tasks
    notifications  reloads, and what clients are told about them
    conversation   the messages of one client; stdio: over a pipe
    http           over HTTP; http_headers: headers and bodies; http_sessions: clients before 2026-07-28

Messages and errors are in `core.mcp_protocol`.

It is written without the official SDK, which is the client in the tests (see docs/internals/decisions/0011).
"""
