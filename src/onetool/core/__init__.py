"""The core: tools, calls, results and the executor. It imports no other package of OneTool."""
