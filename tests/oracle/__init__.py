"""The rules of a run made executable: token by token, slot by slot, with nothing clever.  The engine must equal it."""
