"""Before any test is imported: hypothesis's settings, and Triton's interpreter where there is no GPU."""

import os
from pathlib import Path

from hypothesis import HealthCheck, settings

# The same examples in every run, none of them timed.
settings.register_profile("pagesim", derandomize=True, deadline=None, database=None,
                          suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("pagesim")

# Triton reads this when it is imported, and the tests of every folder share a process.
if not Path("/dev/nvidia0").exists():
    os.environ["TRITON_INTERPRET"] = "1"

# pytest imports readline, which sets these for every program that a test starts; no test has a window.
for _name in ("COLUMNS", "LINES"):
    os.unsetenv(_name)
    os.environ.pop(_name, None)
