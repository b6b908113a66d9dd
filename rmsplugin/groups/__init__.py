"""Groups: parts of the VM hosts, each with a proposal of its own, made in parallel. Pure.

``forming`` says which host is in which group, ``summary`` what a group has left, ``assignment`` to which group a vjob
goes, ``splitting`` and ``merging`` make parts of a configuration, and one proposal of theirs.
"""
