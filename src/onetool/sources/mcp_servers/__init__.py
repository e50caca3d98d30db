"""MCP servers of other people, used as packs. The SDK is imported with the first connection."""
