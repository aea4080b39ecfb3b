"""The engine that trains several clients at a time on threads, with one thread inside tensor operations."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from queue import SimpleQueue

from pydantic import Field

from mnemos.client.messages import Arithmetic, Plan, TrainRequest
from mnemos.client.trainer import Trainer, intra_op
from mnemos.common.cores import cores
from mnemos.common.devices import CPU
from mnemos.common.pools import compute_pool
from mnemos.data.dataset import Dataset
from mnemos.engines.devices import DeviceEngine
from mnemos.engines.engine import Engine, Runner, Work, blame, engines
from mnemos.engines.serial import Serial
from mnemos.methods.exchange import TrainReply


@engines.register("threads")
class Threads(Engine):
    """A pool of threads, each with its own replica of the model."""

    workers: int = Field(0, ge=0, le=1024, description="0: one per core")
    compile: bool = Field(False, description="compile the model (pays for large ones only)")

    def arithmetic(self) -> Arithmetic:
        """The reference arithmetic, unless the model is compiled."""
        return Arithmetic(compile=self.compile and not self.exact)

    def open(self, plan: Plan, dataset: Dataset, work: Work) -> Runner:
        """A runner with a replica for each worker, and not more workers than clients."""
        workers = min(self.workers or cores(), work.cohort)
        return ThreadsRunner(self, self.planned(plan), dataset, workers)


def one_by_one(work: Work, engine: DeviceEngine) -> Engine:
    """An engine that trains clients separately, on the devices of another one and as exactly.

    On the CPU these are threads, if there are several cores and clients.
    """
    if engine.devices != (CPU,) or cores() == 1 or work.cohort == 1:
        return Serial(exact=engine.exact, device=engine.settled().device)
    return Threads(exact=engine.exact)


class ThreadsRunner(Runner):
    """Trains clients as workers become free, and yields their updates in the cohort's order."""

    def __init__(self, engine: Engine, plan: Plan, dataset: Dataset, workers: int) -> None:
        super().__init__(engine, plan)
        self._workers = workers
        self._trainers = [Trainer(plan, dataset) for _ in range(workers)]
        self._free: SimpleQueue[Trainer] = SimpleQueue()
        for trainer in self._trainers:
            self._free.put(trainer)
        self._pool = compute_pool(workers, "mnemos")

    def run(self, cohort: Iterable[TrainRequest]) -> Iterator[TrainReply]:
        """Train the clients of a cohort, with at most two requests for each worker at a time."""
        waiting: deque[tuple[TrainRequest, Future[TrainReply]]] = deque()
        # Some libraries have one number of threads for the whole process, so the main thread's must agree.
        with intra_op(1):
            try:
                for request in cohort:
                    waiting.append((request, self._pool.submit(self._train, request)))
                    if len(waiting) >= 2 * self._workers:
                        yield self._next(waiting)
                while waiting:
                    yield self._next(waiting)
            finally:
                for _, future in waiting:
                    future.cancel()

    def close(self) -> None:
        """End the threads; a client that is still in training, as the run was interrupted, stops early."""
        for trainer in self._trainers:
            trainer.abandoned = True
        self._pool.shutdown(cancel_futures=True)

    def _train(self, request: TrainRequest) -> TrainReply:
        trainer = self._free.get()
        try:
            return trainer(request)
        finally:
            self._free.put(trainer)

    @staticmethod
    def _next(waiting: deque[tuple[TrainRequest, Future[TrainReply]]]) -> TrainReply:
        request, future = waiting.popleft()
        try:
            return future.result()
        except Exception as error:  # raised again with the client's number
            blame(request, error)
