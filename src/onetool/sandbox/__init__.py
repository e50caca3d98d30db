"""The sandbox: runs code in Monty's worker processes, over their pipes, never in this process."""
