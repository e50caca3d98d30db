"""Bundles: collections of tools that people store in files, switch on and off, version and share.

The model:

model         bundles and tools, and the built-in packs as bundles
names         slugs, versions, ids
validation    conversion of external data into the model
errors        the errors of a store

Storage:

store         BundleStore: a bundle is its files, in a folder or in a database
queries       queries and their results, and the visibility of bundles and tools
row_facts     additional fields of tools in lists
searching     the search index of a store's tools in memory
usage         the number of calls and the last call of each tool

Operations:

service       BundleService: the operations of REST and the command line
derived       packs, declared tools and MCP servers as read-only bundles
tool_factory  conversion of a stored tool into a ToolSpec, with its handler and rate limit
rate_limits   rate limits that are shared between processes
named         the tools of a store by their names in code
editing       copying, versioning and renaming tools
drafts        checks and previews of drafts
archive       ZIP archives
openapi/      imports of OpenAPI documents
curl/         imports of curl commands
import_names  names for imported items
"""
