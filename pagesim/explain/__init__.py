"""Short lessons on real numbers: each function makes a ``Lesson``, text and a question; the command line shows and asks."""
