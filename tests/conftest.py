"""Settings of hypothesis: the same examples in every run, none of them timed."""

from hypothesis import HealthCheck, settings

settings.register_profile("pagesim", derandomize=True, deadline=None, database=None,
                          suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("pagesim")
