"""The app: the only room that wires things together.

`app` has `App` itself, `view` what the pack `ot` sees of it, `services` what declared tools may reach of it, `absent`
why something is not there, and `oversights` what a config says in vain.
"""

from onetool.app.app import App as App
