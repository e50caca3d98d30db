"""One model of the config, one loader."""
