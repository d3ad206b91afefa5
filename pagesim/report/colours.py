"""Colours that mean something: Okabe and Ito's, told apart with any kind of colour vision."""

PART_COLOURS = {
    "token_states": "#0072B2",
    "reserved": "#56B4E9",
    "overreserved": "#E69F00",
    "rounding": "#F0E442",
    "cached": "#009E73",
    "stranded": "#D55E00",
    "idle": "#D9DDE1",
    "remainder": "#8A9199",
}
PAPER_COLOURS = {
    "token_states": "#0072B2",
    "reserved": "#56B4E9",
    "internal": "#E69F00",
    "external_and_others": "#D55E00",
}
TEXTBOOK_COLOURS = {"used": "#0072B2", "internal": "#E69F00", "external": "#D55E00", "free": "#D9DDE1"}
RUNNING, WAITING, PREEMPTED = "#009E73", "#CC79A7", "#D55E00"
SERIES = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9", "#8A9199")
# Theirs for black stays free for text and axes.
OWNERS = ("#56B4E9", "#E69F00", "#009E73", "#F0E442", "#0072B2", "#D55E00", "#CC79A7")
SHARED, KEPT = "#4A4F55", "#B3D8C6"  # owned by several; kept by a prefix cache alone
MAP = (*OWNERS, SHARED, KEPT)
DARK = ("#0072B2", "#D55E00", "#009E73")  # white text is readable on these, black on the others
