"""Runs that know nothing of one another, each to its end, in threads: the compiled loop lets others run beside it."""

from collections.abc import Callable
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from threading import Event

from pagesim.engine.run import Run

# Short enough that Ctrl-C and the progress display feel immediate, long enough to cost nothing.
_STEPS_AT_ONCE = 200_000
_SECONDS_BETWEEN_REPORTS = 0.1


def run_beside(runs: list[Run], num_threads: int, report: Callable[[list[Run]], None]) -> None:
    """Run all to their end, and let those that end early stand idle until the last does.

    Args:
        num_threads: of them at the same time.
        report: called from time to time in the thread that calls.
    """
    runs[0].advance(0)  # compiles the loop, which one thread must do alone
    stopped = Event()
    with ThreadPoolExecutor(num_threads) as threads:
        going = {threads.submit(_to_end, run, stopped) for run in runs}
        try:
            while going:
                ended, going = wait(going, _SECONDS_BETWEEN_REPORTS, FIRST_EXCEPTION)
                for each in ended:
                    each.result()
                report(runs)
        finally:
            stopped.set()
            threads.shutdown(cancel_futures=True)
    end_ns = max(run.end_ns() for run in runs)
    for run in runs:
        run.stand_idle(end_ns)


def _to_end(run: Run, stopped: Event) -> None:
    while not stopped.is_set() and run.advance(_STEPS_AT_ONCE):
        pass
