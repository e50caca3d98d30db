"""Other people's MCP servers, as packs. Light to import: the SDK comes with the first connection."""
