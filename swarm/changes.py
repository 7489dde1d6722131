"""A dirty flag that file events set. Events are hints: whoever uses this scans from time to time as well."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from watchdog.observers.api import BaseObserver

JOIN_S = 2.0


class Changes:
    """Watches folders and what is below them. Never fails: without events `fault` says why."""

    def __init__(self, folders: Iterable[Path]) -> None:
        self._folders = tuple(folders)
        self._dirty = threading.Event()
        self._dirty.set()  # nothing has been looked at yet
        self._observer: BaseObserver | None = None
        self._start_fault: str | None = None

    def __enter__(self) -> Self:
        from watchdog.events import FileSystemEvent, FileSystemEventHandler  # 40 ms, for watchers only
        from watchdog.observers import Observer

        dirty = self._dirty

        class Flag(FileSystemEventHandler):
            def on_any_event(self, event: FileSystemEvent) -> None:
                if event.event_type not in ("opened", "closed_no_write"):  # our own scans cause these
                    dirty.set()

        # It warns when a folder is made while it lists its parent, and then does the right thing.
        warnings.filterwarnings("ignore", "Callback with id", RuntimeWarning, "watchdog")
        observer = Observer()
        try:
            for folder in self._folders:
                folder.mkdir(parents=True, exist_ok=True)
                observer.schedule(Flag(), str(folder), recursive=True)
            observer.start()
        except OSError as error:  # out of inotify instances or watches
            self._start_fault = f"no file events ({error.strerror or error}); polling"
            return self
        self._observer = observer
        return self

    def __exit__(self, *_: object) -> None:
        if self._observer is not None:
            self._observer.stop()
            self._observer.join(JOIN_S)

    @property
    def fault(self) -> str | None:
        """Say why no events arrive; None while they do."""
        if self._observer is None:
            return self._start_fault or "not watching"
        threads = [self._observer, *self._observer.emitters]
        return None if all(thread.is_alive() for thread in threads) else "the file observer died; polling"

    def take(self) -> bool:
        """Say whether anything happened since the last call, and forget it."""
        if not self._dirty.is_set():
            return False
        self._dirty.clear()
        return True
