"""How `onetool servers import` takes over the MCP servers that other clients know.

places      where clients keep their files (clients/known has those that `onetool init` writes to)
reading     a file -> blocks by name: JSON with comments, TOML or YAML, under whichever key
translate   a block in another client's words -> one in ours (variables: its `${…}`)
hiding      what looks like a secret goes into the secrets file; `${NAME}` stays in its place
plan        all blocks -> what would be written, what is left out, and why
writing     into the config and the secrets file: all of it, or nothing
commands    what was asked for on the command line (telling: what is said about it)

Nothing here starts a server, and no message repeats a value that may be a secret.
"""
