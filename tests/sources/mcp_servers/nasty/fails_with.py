"""Says its argument on stderr, with its variables filled in ($NAME), and ends with 1."""

import os
import sys

from wire import note_pid

note_pid(os.getpid())
print(os.path.expandvars(sys.argv[1]), file=sys.stderr)
sys.exit(1)
