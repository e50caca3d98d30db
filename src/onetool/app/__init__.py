"""The app: the only room that wires things together.

`app` has `App` itself, `parts` what is made of one config, `view` what the pack `ot` sees of it and `reports` what that
writes, `services` what declared tools may reach, `files` what a config is read from, `absent` why something is not
there, `oversights` what a config says in vain.
"""

from onetool.app.app import App as App
