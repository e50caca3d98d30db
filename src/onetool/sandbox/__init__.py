"""The sandbox: Monty's worker processes, driven over their pipes. Code runs there and never in this process."""
