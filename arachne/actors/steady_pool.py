"""A pool of subprocesses whose time limits go by a clock that never jumps, as pebble's own go by the wall clock."""

from time import monotonic
from typing import Any

from pebble import ProcessPool
from pebble.pool.process import TaskManager


class SteadyPool(ProcessPool):
    """Kills what takes too long, and nothing because somebody set the clock."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        # Nothing runs before the first task is scheduled.
        self._pool_manager.task_manager = _SteadyTasks(self._context.task_queue.task_done)


class _SteadyTasks(TaskManager):
    def task_start(self, task_id: int, worker_id: int | None) -> None:
        super().task_start(task_id, worker_id)
        task = self.tasks.get(task_id)
        if task is not None:
            task.timestamp = monotonic()

    @staticmethod
    def timeout(task: Any) -> bool:
        return bool(task.timeout and task.started) and monotonic() - task.timestamp > task.timeout
