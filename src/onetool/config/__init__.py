"""One model of the config, one loader.

find        which file is in force, and whose it is
owners      whose files count
trust       whether a project's folder may be used (reach: what it reaches; trust_store, stamps: what is remembered)
source      its text
syntax      text -> YAML's nodes, within bounds (mend: two things people write that the parser stumbles over)
yaml_nodes  YAML's nodes -> ours, every value with its line (scalars: what an unquoted word means)
include     many files -> one root
placeholders, secret_values   `${NAME}` and where it comes from
shape       node + type -> value or findings (wanted: what a type asks for, in words)
model       every key, its type and default
load        the straight line through all of these
"""

from onetool.config.find import Found, find, find_config, nearest_folder
from onetool.config.load import load_config, load_roots, load_secrets
from onetool.config.model import Config, Declared

__all__ = [
    "Config",
    "Declared",
    "Found",
    "find",
    "find_config",
    "load_config",
    "load_roots",
    "load_secrets",
    "nearest_folder",
]
