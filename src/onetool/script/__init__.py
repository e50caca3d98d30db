"""The language of `run`: read -> expand (aliases, snippets) -> check -> execute in the sandbox -> render."""
