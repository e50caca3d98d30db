"""The config: found, read from YAML, checked and converted to one `Config`.

find           which file is in force, and whose it is
file_checks    who owns a file, and who can write to it
trust          whether a project's folder may be used, and which folders are trusted
pin            what a project's folder says, line by line
read           a file and its includes -> plain data with the place of every value
findings       the places, and the mistakes found so far
fill           `${NAME}` in the data; the key `secrets`
check          data + type -> value, or mistakes
model          every key with its type and default
cluster        the key `cluster`: the secret that replicas share
stateful       servers that replicas and workers refuse
load           all of these in order: a file -> Config; and the files and folders that it was read from
code_changes   which changes of a config are code, and which are settings
edit           adds servers and hosts to the text of a config file and removes them
client_files   reads and changes the config files of MCP clients
known_clients  the known MCP clients, and the places of their files
server_import  servers of other clients -> servers of the config
starter        the config that `onetool init` writes
"""

from onetool.config.find import Found, find
from onetool.config.load import load_config, load_secrets
from onetool.config.model import Config

__all__ = [
    "Config",
    "Found",
    "find",
    "load_config",
    "load_secrets",
]
