"""Adds MCP servers to the config, from blocks as other clients write them: `onetool servers import` and REST do this.

translate      a client's file -> server blocks as our config has them
hide_secrets   values that look like secrets -> `${NAME}` and an entry in the secrets file
plan           all blocks -> what would be written; then written to the config, all of it or nothing
"""
