"""Assessment: turns observed facts into a configuration to decide about, and names the vjobs it leaves out. Pure.

A world is nearly always half-way: vjobs start, nodes do not answer, rooms are about to be given back. Decisions and
plans are made for the settled part. The rest keeps its place and its holdings, and makes nothing undecidable.
"""
