"""The interfaces of an app (command line, HTTP, MCP, REST): they decode requests, call the app and encode results."""
