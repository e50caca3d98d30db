"""The sources of tools: the config, packs, MCP servers, bundles."""
