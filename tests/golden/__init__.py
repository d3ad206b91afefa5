"""Recordings of other programs, and how to read them."""
