"""The floor: an MCP server that is one loop over its lines, with one tool, and nothing else. Started by its path."""

import json
import sys

NUMBER = {"type": "integer"}
SCHEMA = {"type": "object", "properties": {"a": NUMBER, "b": NUMBER}, "required": ["a", "b"]}
ADD = {"name": "add", "description": "Add two numbers.", "inputSchema": SCHEMA}

for line in sys.stdin:
    message = json.loads(line)
    params = message["params"]
    if message["method"] == "tools/list":
        result = {"tools": [ADD]}
    else:
        args = params["arguments"]
        result = {"content": [{"type": "text", "text": str(args["a"] + args["b"])}]}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
