"""The application: `App` connects the config, the tools, the executor, the sandbox and the interfaces.

app             App itself: what every interface calls
catalog         the tools that there are now, a search over them, and why one is missing
call_evidence   the tools that a caller has called: they count a little more in that caller's searches
reload          reads the config and its packs again
runtime         the services that belong to one config (executor, engine, results, stats)
ask             `App.ask`: one question to a model (tool_backends: how its tool calls are executed and approved)
provider_keys   which API key is sent to which address
bundles         the bundles of the config in force (bundle_runtime: what their tools use of the app)
bundle_import   takes in a bundle: an archive, or an OpenAPI document (curl_import: a curl command)
tool_requirements   secrets and hosts that tools of bundles need
view            what the pack `ot` and declared tools see of the app
describe        what a model reads about the tool `run` and the server
status          what the app tells of itself: facts of a tool, health
config_lint     keys of a config that have no effect
"""

from onetool.app.app import App as App
