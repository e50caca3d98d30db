"""The core: tools, calls, results and the executor. The core imports no other package of OneTool."""
