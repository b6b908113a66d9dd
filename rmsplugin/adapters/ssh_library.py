"""Ssh library: paramiko, imported without a package that it takes for a thing that nothing here does."""

from __future__ import annotations

from rmsplugin.left_out import imports_give

with imports_give(invoke=None):
    import paramiko as paramiko
