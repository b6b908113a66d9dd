"""Planning offline: from a configuration in a file to an answer, and from that to JSON, to text and to a graph."""
