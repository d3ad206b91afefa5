"""Floor 0: integers of slots and blocks.  No time."""
