"""Upgrade drill: an older release's minicluster gets this one, host after host, while vjobs run and sleep."""
