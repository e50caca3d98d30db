"""External MCP servers, used as packs. The MCP SDK is imported with the first connection."""
