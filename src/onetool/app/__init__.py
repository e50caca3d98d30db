"""The application: `App` connects the config, the tools, the executor, the sandbox and the interfaces.

app             App itself: what every interface calls
catalog         the tools that there are now, a search over them, and why one is missing
call_evidence   which tools a caller has called before, for that search
learned_shapes  what tools return, learned from their results
reload          reads the config and its packs again
runtime         the services that belong to one config (executor, engine, results, stats)
ask             `App.ask`: one question to a model
provider_keys   which API key of a model provider is sent to which address
secret_rules    which secrets HTTP tools may send, and where
tool_backends   how the tool calls of that model are executed and approved
bundles         the bundles of the config in force
bundle_runtime  what the tools of bundles use of the app
tool_files      reads the files that HTTP tools send
bundle_import   takes in tools: an archive, an OpenAPI document, or a curl command
view            what the pack `ot` and declared tools see of the app
describe        what models read about the tools and the server, facts of a tool, health
code_names      what code of `run` can say, for editors
findings        what is wrong with the config and the tools
requirements    what tools of bundles need: secrets, and hosts that have to be allowed
grants          gives tools what they need: hosts that they may call, and secrets
config_lint     keys of a config that have no effect

access          whether a server needs a credential, and the tokens that there are
own_server      the entry that an MCP client needs to call this server, or to start it
token_admin     adds, lists and revokes named tokens
allow_lists     which tools each caller of a server may call
audit           the audit log of an app that is served
telemetry       sends traces and metrics to a collector, where the config has `otel`
documents       small things in the database, by kind
old_state       takes over what the version before kept in files
database        the database of the config in force
database_state  how that database is: reachable, its tables
database_copy   copies all state from one place to another: `onetool db import` and `export`
"""

from onetool.app.app import App as App
