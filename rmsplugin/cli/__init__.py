"""The command line program ``rmsplugin``: one module a command group."""
