"""Bundles are collections of tools that people keep in files, switch on and off, version and share.

What they are:

model         a bundle, a tool, and the built-in packs as bundles
names         slugs, versions, ids
validation    data from outside -> model
errors        what a store refuses, and why

Where they are kept:

rules         BundleStore: what may be read and changed in a store, wherever it keeps bundles
transaction   one change of a store
contents      all bundles and tools of a store in memory, and in a file for the next start
store         questions to a store and their answers, and what a client may see of one
files/        the store that keeps bundles in a folder
database/     the store that keeps bundles in the database that replicas share
row_facts     what a list of tools says of each tool
searching     the words of a store's tools in memory
usage         how often tools were called, and when last
transfer      moves everything between two stores

What is done with them:

service       BundleService: what REST and the command line do with bundles
derived       packs, declared tools and MCP servers as bundles that are only read
tool_factory  a stored tool -> a ToolSpec with its handler and its rate limit
rate_limits   counts the calls of limited tools, together with other processes
named         the tools of a store under their names in code
editing       copies of tools, new versions, other names, one's own examples
drafts        checks what is about to be stored or sent, and shows what a call would do
archive       ZIP archives
openapi/      imports of OpenAPI documents
curl/         imports of curl commands
import_names  names for what is imported
"""
