"""Territory: the hosts and vjobs of one group, which are all that the group's engine sees and acts on."""
