"""End-to-end tests: a package, so that their minicluster goes down when a worker turns to other tests."""
