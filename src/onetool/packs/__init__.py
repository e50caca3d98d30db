"""The built-in packs. They use the SDK like anyone's."""
