"""Clients that ask a web department's page all the time."""

from __future__ import annotations

import threading
import urllib.error
import urllib.request
from collections import Counter
from typing import Final

from tests.integration.up_cloud import until

PAUSE_S: Final = 0.03  # between two requests


class Users:
    """Ask one page after another until they are stopped; `told`: status -> how many had it; `lost`: those without one."""

    def __init__(self, url: str) -> None:
        self.url, self.told, self.lost = url, Counter[int](), list[str]()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._visit)

    def __enter__(self) -> Users:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    @property
    def failed(self) -> list[str]:
        return [*(f"{count} had status {status}" for status, count in self.told.items() if status != 200), *self.lost]

    def _visit(self) -> None:
        while not self._over.wait(PAUSE_S):
            try:
                with urllib.request.urlopen(self.url, timeout=60) as answer:
                    answer.read()
                    self.told[answer.status] += 1
            except urllib.error.HTTPError as error:
                self.told[error.code] += 1
            except OSError as error:
                self.lost.append(str(error))

    def until(self, status: int, count: int, otherwise: str) -> None:
        """This many more of them have it, or one failed."""
        before = self.told[status]
        until(lambda: self.told[status] >= before + count or self.lost, otherwise)
