"""The domain: what a tool, a call and a result are. Imports nothing of ours."""
