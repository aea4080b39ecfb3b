"""Several clients at once on threads, each with one thread inside its tensor operations."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from queue import SimpleQueue

import torch
from pydantic import Field

from mnemos.client import Trainer, intra_op
from mnemos.cores import cores
from mnemos.data.dataset import Dataset
from mnemos.engines.engine import Engine, Runner, Work, blame, engines
from mnemos.engines.serial import Serial
from mnemos.message import Arithmetic, Plan, Task
from mnemos.methods.exchange import Update


@engines.register("threads")
class Threads(Engine):
    """A pool of workers with one replica each."""

    workers: int = Field(0, ge=0, le=1024, description="0: one a core")
    compile: bool = Field(False, description="compile the model (pays for large ones only)")

    def arithmetic(self) -> Arithmetic:
        """The reference arithmetic, unless compiled."""
        return Arithmetic(compile=self.compile and not self.exact)

    def open(self, plan: Plan, dataset: Dataset, work: Work) -> Runner:
        """A replica a worker, and no more workers than clients."""
        workers = min(self.workers or cores(), work.cohort)
        plan = plan.model_copy(update={"arithmetic": self.arithmetic()})
        return ThreadsRunner(self, plan, dataset, workers)


def one_by_one(work: Work, exact: bool = False) -> Engine:
    """The engine for a cohort whose clients can't be computed as one: threads, if there is work for two."""
    return Serial(exact=exact) if cores() == 1 or work.cohort == 1 else Threads(exact=exact)


class ThreadsRunner(Runner):
    """Trains clients as workers come free; gives their updates in the cohort's order."""

    def __init__(self, engine: Engine, plan: Plan, dataset: Dataset, workers: int) -> None:
        super().__init__(engine, plan)
        self._workers = workers
        self._free: SimpleQueue[Trainer] = SimpleQueue()
        for _ in range(workers):
            self._free.put(Trainer(plan, dataset))
        self._pool = ThreadPoolExecutor(workers, "mnemos", initializer=torch.set_num_threads, initargs=(1,))

    def run(self, cohort: Iterable[Task]) -> Iterator[Update]:
        """The updates of a cohort; at most two a worker are waiting or under way."""
        waiting: deque[tuple[Task, Future[Update]]] = deque()
        # Some libraries keep one setting for the whole process: the main thread's must agree.
        with intra_op(1):
            try:
                for task in cohort:
                    waiting.append((task, self._pool.submit(self._train, task)))
                    if len(waiting) >= 2 * self._workers:
                        yield self._next(waiting)
                while waiting:
                    yield self._next(waiting)
            finally:
                for _, future in waiting:
                    future.cancel()

    def close(self) -> None:
        """End the pool."""
        self._pool.shutdown(cancel_futures=True)

    def _train(self, task: Task) -> Update:
        trainer = self._free.get()
        try:
            return trainer(task)
        finally:
            self._free.put(trainer)

    @staticmethod
    def _next(waiting: deque[tuple[Task, Future[Update]]]) -> Update:
        task, future = waiting.popleft()
        try:
            return future.result()
        except Exception as error:  # named, and raised again
            blame(task, error)
