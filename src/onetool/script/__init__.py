"""`run`: parses code, expands snippets, checks calls, runs it in the sandbox and renders the result."""
