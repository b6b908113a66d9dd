"""contrib/try-release: this checkout on another Debian release, in a root that debootstrap made."""
