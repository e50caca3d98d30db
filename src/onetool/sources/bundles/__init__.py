"""Bundles: collections of tools that people store in files, switch on and off, version and share.

The model:

model         bundles and tools, and the built-in packs as bundles
names         slugs, versions, ids
validation    conversion of external data into the model
errors        the errors of a store

Storage:

rules         BundleStore: reading and changing any store, by the same rules
transaction   a change of a store
contents      all bundles and tools of a store in memory, and a cache file for the next start
queries       queries and their results, and the visibility of bundles and tools
files/        the store in a folder
database/     the store in the database that replicas share
row_facts     additional fields of tools in lists
searching     the search index of a store's tools in memory
usage         the number of calls and the last call of each tool
transfer      copying everything between two stores

Operations:

service       BundleService: the operations of REST and the command line
derived       packs, declared tools and MCP servers as read-only bundles
tool_factory  conversion of a stored tool into a ToolSpec, with its handler and rate limit
rate_limits   rate limits that are shared between processes
named         the tools of a store by their names in code
editing       copying, versioning and renaming tools, and users' own examples
drafts        checks and previews of drafts
archive       ZIP archives
openapi/      imports of OpenAPI documents
curl/         imports of curl commands
import_names  names for imported items
"""
