"""Assessment: from what was seen to what can be decided. Pure: facts in, a configuration and what it leaves out.

A world is nearly always half-way: vjobs start, nodes do not answer, rooms are about to be given back. Decisions and
plans are made for the settled part; the rest keeps its place and what it holds, and makes nothing undecidable.
"""
