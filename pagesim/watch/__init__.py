"""A run played live in a terminal: ``player`` knows the run, ``draw`` the characters, ``app`` the keys."""
