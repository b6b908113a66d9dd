"""Controllers: the hosts whose engines may lead: what each is, how they stand, and how the lead is handed over."""
