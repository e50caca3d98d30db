"""Implements `run`: parses code, expands snippets, checks calls, runs the code in the sandbox and renders the
result.
"""
