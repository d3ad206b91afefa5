"""Short lessons on real numbers: each function makes a ``Lesson``; the command line shows it and asks."""
