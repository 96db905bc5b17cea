"""Copies of a job on other devices: what is on the device of the rows goes there, the rest of the job is made again.

A job is taken apart as it is for another process. Arrays of the host stay where they are, and copies that the next job
of a call needs, too, are kept: rows, labels, and the model with what was compiled for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeGuard, TypeVar

import numpy as np

from reliance._core import arrays, devices
from reliance._core.kinds import Device, Namespace
from reliance.engine import sending
from reliance.engine.executors import Caller
from reliance.engine.sending import Job
from reliance.losses.functions import Loss, Metric
from reliance.models.calling import Model

if TYPE_CHECKING:
    from typing_extensions import TypeIs

Item = TypeVar("Item")
Answer = TypeVar("Answer")

# What programs of JAX are found by is kept as a whole, so that the jobs of a call share them.
_WHOLE = (Model, Caller, Loss, Metric)


class Replicas:
    """Copies on one device."""

    def __init__(self, xp: Namespace, home: Device, device: Device) -> None:
        self.xp, self.home, self.device = xp, home, device
        # By identity, with the original, so that its identity is not used again.
        self._known: dict[int, tuple[object, object]] = {}
        self._before = self._known

    def of(self, job: Job[Item, Answer]) -> Job[Item, Answer]:
        """A job whose work is done on this device. What only the job before had is let go."""
        self._known, self._before = {}, self._known
        try:
            found = self._copied(job)
        except ImportError:
            raise
        except Exception as error:
            what, reason = sending.unsendable(job, error)
            raise TypeError(
                f"{what} cannot be copied to {self.device} ({reason}): pass the torch module or the function with its "
                "parameters (rl.models.torch, rl.models.jax), which can be, or leave devices= out"
            ) from error
        assert _is_like(found, job)
        return found

    def _copied(self, value: object) -> object:
        def by_itself(one: object) -> TypeGuard[object]:
            return one is not value and (arrays.is_array(one) or self._is_home(one) or type(one) in _WHOLE)

        pickled, apart = sending.packed(value, by_itself)
        return sending.unpacked(pickled, [self._there(one) for one in apart])

    def _there(self, value: object) -> object:
        if self._is_home(value):
            return self.device
        if isinstance(value, np.ndarray | np.generic):
            return value
        if id(value) not in self._known:
            known = self._before.get(id(value))
            self._known[id(value)] = (value, self._made(value)) if known is None else known
        return self._known[id(value)][1]

    def _made(self, value: object) -> object:
        if not arrays.is_array(value):
            return self._copied(value)
        # What is elsewhere was put there on purpose: indices on the host, for instance.
        there = arrays.namespace(value) is self.xp and arrays.device(value) == self.home
        return devices.copied_to(value, self.device) if there else value

    def _is_home(self, value: object) -> bool:
        return type(value) is type(self.home) and value == self.home


def _is_like(found: object, job: Job[Item, Answer]) -> TypeIs[Job[Item, Answer]]:
    return type(found) is type(job)
