"""The one place that starts tasks: they are named, kept until done, and a failure is never silent."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

_running: set[asyncio.Task[Any]] = set()


def start(coroutine: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
    """Run `coroutine` on the running loop. An exception reaches the loop's exception handler."""
    task = asyncio.get_running_loop().create_task(coroutine, name=name)
    _running.add(task)
    task.add_done_callback(_done)
    return task


def _done(task: asyncio.Task[None]) -> None:
    _running.discard(task)
    if task.cancelled():
        return
    error = task.exception()
    if error is not None:
        context = {"message": f"task {task.get_name()} failed", "exception": error, "task": task}
        task.get_loop().call_exception_handler(context)
