"""Bundles are collections of tools that people keep in files, switch on and off, version and share.

What they are:

model         a bundle, a tool, and the built-in packs as bundles
names         slugs, versions, ids
validation    data from outside -> model
errors        what a store refuses, and why

Where they are kept:

store         the protocol of a store, and what a client may see of one
rules         what may be changed in a store, wherever it keeps bundles
files/        the store that keeps bundles in a folder
index/        the derived index of a store: lists, and what the search follows
database/     the store that keeps bundles in the database that replicas share
indexed       the reading half of both stores: it asks the index
row_facts     what a list of tools says of each tool
searching     the words of bundles' tools in memory, in step with the index
usage         how often tools were called, and when last
transfer      moves everything between two stores

What is done with them:

service       BundleService: what REST and the command line do with bundles
derived       packs, declared tools and MCP servers as bundles that are only read
tool_factory  a stored tool -> a ToolSpec with its handler and its rate limit
rate_limits   counts the calls of limited tools, together with other processes
named         the tools of a store under their names in code
loaded        one of these before it is a ToolSpec, and all of a bundle before anybody has asked for one
editing       copies of tools, new versions, other names, one's own examples
drafts        checks what is about to be stored or sent, and shows what a call would do
archive       ZIP archives
openapi/      imports of OpenAPI documents
curl/         imports of curl commands
import_names  names for what is imported
"""
