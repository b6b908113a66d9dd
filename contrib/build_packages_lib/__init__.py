"""contrib/build-packages: the Debian packages of this checkout."""
