"""Bundles are collections of tools that people keep in files, switch on and off, version and share.

model           what a bundle and a tool are, and the built-in packs as bundles
names           slugs, versions, ids
validation      data from outside -> model
store           the protocol of a store, and what a client may see of one
files/          the store that keeps bundles in a folder
index/          the derived index of that folder: lists and search
tool_factory    a stored tool -> a ToolSpec with its handler and its rate limit
loading         the tools of a store under their names in code
service         BundleService: what REST and the command line do with bundles
archive         ZIP archives
openapi/, curl/ imports of OpenAPI documents and curl commands
"""
