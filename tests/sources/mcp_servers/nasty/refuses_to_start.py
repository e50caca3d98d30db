"""Says why on stderr, and ends with 3."""

import os
import sys

from wire import note_pid

note_pid(os.getpid())
print("no license key: set LICENSE_KEY", file=sys.stderr)
sys.exit(3)
