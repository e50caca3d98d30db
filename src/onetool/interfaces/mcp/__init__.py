"""The MCP server: serves the tools of an app to clients of the Model Context Protocol.

    client         a client and its request; progress, log messages and questions; lists in pages
    methods        the methods: tools, tasks, the handshake; service: their shared state
    offers         the methods of prompts and resources; content: results as content blocks
    menus          the tools in tools/list: `run` alone; `search`, `call` and `run`; or every tool
    pending_calls  calls that pause for an answer, and tasks
    notifications  reloads, and notifications to clients
    conversation   the messages of one client; stdio: MCP over a pipe
    http           MCP over HTTP; http_headers: headers and bodies; http_sessions: clients before 2026-07-28

Messages and errors are in `core.mcp_protocol`.

This package does not use the official SDK, which is the client in the tests (see docs/internals/decisions/0011).
"""
