"""Lifetime: processes of tests that end when the run of the tests does, however that ends."""

#: Before the words of such a process. It ends with the thread that has started it, so that has to live as long.
ENDS_WITH_US = ("setpriv", "--pdeathsig", "KILL")
