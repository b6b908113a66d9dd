"""Accounting: MariaDB for slurmdbd, on the head. A made database is kept in the cache and copied for each cluster."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from minicluster_lib import hosts
from minicluster_lib.cache import cache_directory, locked, package_key
from minicluster_lib.layout import Cluster, MiniclusterError
from minicluster_lib.waiting import wait_until

_CONFIGURATION = """\
[mariadbd]
user = mysql
datadir = /var/lib/mysql
socket = /run/mysqld/mysqld.sock
pid-file = /run/mysqld/mysqld.pid
skip-networking
skip-name-resolve
init-file = /etc/mysql/minicluster.sql
innodb_buffer_pool_size = 32M
innodb_log_file_size = 8M
innodb_lock_wait_timeout = 900
innodb_flush_log_at_trx_commit = 0
performance_schema = off
aria_pagecache_buffer_size = 4M
key_buffer_size = 1M
"""

_INITIAL_SQL = """\
CREATE DATABASE IF NOT EXISTS slurm_acct_db;
CREATE USER IF NOT EXISTS slurm@localhost IDENTIFIED VIA unix_socket;
GRANT ALL ON slurm_acct_db.* TO slurm@localhost;
"""


def install_database(cluster: Cluster) -> None:
    """Put an empty database and its configuration on the head."""
    head = cluster.head
    (head.path("etc/mysql/minicluster.cnf")).write_text(_CONFIGURATION)
    (head.path("etc/mysql/minicluster.sql")).write_text(_INITIAL_SQL)
    made = empty_database()
    data = head.path("var/lib/mysql")
    subprocess.run(["cp", "-a", "--reflink=auto", str(made), str(data)], check=True)


def empty_database() -> Path:
    """Return the directory of a made database that is in nobody's use, making it when the cache has none."""
    with locked("mariadb"):
        return _cached_database()


def _cached_database() -> Path:
    made = cache_directory() / "mariadb" / package_key(["mariadb-server"])
    if made.is_dir():
        return made
    made.parent.mkdir(parents=True, exist_ok=True)
    work = made.with_name(made.name + ".new")
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(mode=0o755)
    shutil.chown(work, "mysql", "mysql")
    result = subprocess.run(
        [
            "mariadb-install-db",
            "--no-defaults",
            "--user=mysql",
            f"--datadir={work}",
            "--skip-test-db",
            "--auth-root-authentication-method=socket",
            "--innodb-log-file-size=8M",
            "--innodb-flush-log-at-trx-commit=0",
        ],
        capture_output=True,
        text=True,
    )
    if result.returncode != 0:
        raise MiniclusterError(f"mariadb-install-db failed: {result.stderr[-1500:] or result.stdout[-1500:]}")
    work.rename(made)
    return made


def start(cluster: Cluster) -> None:
    """Start MariaDB and wait for it: slurmdbd would try again only after five seconds."""
    head = cluster.head
    hosts.run(cluster, head, ["install", "-d", "-m", "755", "-o", "mysql", "-g", "mysql", "/run/mysqld"])
    hosts.start_daemon(head, "mariadb", ["/usr/sbin/mariadbd", "--defaults-file=/etc/mysql/minicluster.cnf"])
    socket = Path(f"/proc/{cluster.init_pids[head.name]}/root/run/mysqld/mysqld.sock")
    wait_until(socket.exists, 60, "MariaDB")
