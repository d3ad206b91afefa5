"""Floor 6: a YAML file of an experiment → the cases to run.  Nothing else imports pydantic."""

from pagesim.case import Capacity, Case, Experiment, TraceOptions
from pagesim.config.load import load

__all__ = ["Capacity", "Case", "Experiment", "TraceOptions", "load"]
