"""Managers: each runs the engines of the groups that are given to it, and answers for all (seed 003, section 3.2).

``site`` is a manager among the others, ``leader`` what the one that leads gives to groups, ``children`` the engines
that it runs, ``entry`` how it answers requests.
"""
