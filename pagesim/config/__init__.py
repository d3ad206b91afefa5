"""Floor 6: a YAML file of an experiment → the cases to run.  The only importer of yaml and pydantic besides the catalogue's files."""

from pagesim.config.case import Capacity, Case, Experiment, TraceOptions
from pagesim.config.load import load

__all__ = ["Capacity", "Case", "Experiment", "TraceOptions", "load"]
