"""What `onetool init --client …` knows of MCP clients, and how it puts OneTool into their files.

known       each client: its files, its words for things, what to do next
server      what a client is to start or to call: a command that works from anywhere, or a url; never a secret
json_text   JSON with comments, read with the place of every member
put_json, put_toml   one more entry in the text of such a file, with nothing else changed
put_file    the same in the file itself, whole or not at all (refused: why it stays as it is)
setup       the straight line through all of these
"""
