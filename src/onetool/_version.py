"""The version of OneTool, in a file of its own, so that every module can import it."""

__version__ = "0.1.0"
