"""Check: what a site must have for the plugin to work, as pure rules on facts that one module gathers."""
