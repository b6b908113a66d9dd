"""The story that ``contrib/quickstart`` shows on a minicluster, and checks while it shows it."""
