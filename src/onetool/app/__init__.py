"""The application: `App` connects the config, the tools, the executor, the sandbox and the interfaces.

app             App itself: what every interface calls
catalog         the current tools, a search over them, and the reason why a tool is missing
call_evidence   the tools that a caller has called before, for that search
reload          reloads the config and its packs
runtime         the services that belong to one config (executor, engine, results, stats)
ask             `App.ask`: one question to a model
provider_keys   which API key of a model provider is sent to which address
secret_rules    which secrets HTTP tools may send, and where
tool_backends   executes a model's tool calls and decides which need approval
bundles         the bundles of the config in force
bundle_runtime  what the tools of bundles use of the app
tool_files      reads the files that HTTP tools send
bundle_import   imports tools from an archive, an OpenAPI document, or a curl command
import_report   the report of an import: what was stored, and what is needed
server_changes  previews of changes to servers in the config
view            what the pack `ot` and declared tools see of the app
describe        what models read about the tools and the server, facts of a tool, health
code_names      the names that code of `run` can use, for editors
findings        the problems of the config and the tools
requirements    what tools of bundles need: secrets, and hosts that have to be allowed
grants          gives tools what they need: hosts that they may call, and secrets
config_lint     finds keys of a config that have no effect

operations      everything that one can ask of an app, for REST and the command line

access          whether a server needs a credential, and the known tokens
own_server      the entry that an MCP client needs to call or start this server
token_admin     adds, lists and revokes named tokens
allow_lists     which tools each caller of a server may call
journal         the journal of an app: audit log and stats
telemetry       sends traces and metrics to a collector, if the config has `otel`
documents       small documents in the database, by kind
database        the database of the config in force
database_state  the state of that database: whether it is reachable, and its tables
database_copy   copies all state from one place to another: `onetool db import` and `export`
"""

from onetool.app.app import App as App
