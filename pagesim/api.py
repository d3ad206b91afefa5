"""The Python API: what ``pagesim simulate`` does, as one function that returns values."""

from pathlib import Path

from pagesim.case import Case, Experiment
from pagesim.experiment import Simulation, run_experiment


def simulate(what: str | Path | Case | Experiment, overrides: tuple[str, ...] = (), *, jobs: int = 1,
             folder: str | Path | None = None) -> Simulation:
    """Run a config file, an experiment or one case of it.

    Args:
        what: path of a YAML file, or what ``pagesim.config.load`` returns, or one of its cases.
        overrides: ``key=value`` texts, as ``--set`` takes them; only with a path.
        jobs: processes at most.  With more than one the calling script needs the guard ``if __name__ == "__main__":``.
        folder: where to write the run folder; None for nowhere.

    Returns:
        ``metrics``, the object that ``--json`` prints, and ``results``, each case's ``Result`` by its name.

    Raises:
        PagesimError: something in the config or the trace is wrong; where other cases ran, a case's own error is in
            ``metrics["failed"]`` instead.
        KeyboardInterrupt: Ctrl-C; with a folder, what had finished is there.

    Example:
        >>> run = simulate("configs/quickstart.yaml")
        >>> run.metrics["cases"][0]["utilization"]
    """
    from pagesim.config import Case, Experiment, load

    if isinstance(what, Case):
        experiment = Experiment(path=what.name, cases=(what,))
    else:
        experiment = what if isinstance(what, Experiment) else load(what, overrides)
    simulation = run_experiment(experiment, jobs=jobs, folder=None if folder is None else Path(folder),
                                keep_results=True)
    if simulation.interrupted:
        raise KeyboardInterrupt
    return simulation
