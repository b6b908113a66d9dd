"""The command line program ``rmsplugin``: a module or a package for each command, named after it."""
