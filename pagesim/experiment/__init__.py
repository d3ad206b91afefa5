"""Floor 6: the cases of an experiment, run one after the other or over processes."""

from pagesim.experiment.runner import Progress, Simulation, run_experiment

__all__ = ["Progress", "Simulation", "run_experiment"]
