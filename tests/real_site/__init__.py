"""A site in small: Debian machines with systemd and AppArmor, on which an administrator installs the packages."""
