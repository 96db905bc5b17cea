"""What stands in the place of an array, can be indexed as one, and refuses in words whatever else is done to arrays."""

from __future__ import annotations

from typing import NoReturn

from numpy.typing import DTypeLike

from reliance._core.kinds import Device, HostArray, Operand

_ASKS = "this method, or a part of it,"


class Indexed:
    """Every operation of arrays but indexing needs all of it at once; a class below says so in `refuse`."""

    # Namespaces are remembered for each class of arrays, except for these: see `arrays.namespace`.
    of_any_namespace = True

    def refuse(self, asks: str) -> NoReturn:
        """Say that all numbers would be needed at once; ``asks``: who needs them."""
        raise NotImplementedError

    def _refused(self, other: Operand = None, /) -> NoReturn:
        self.refuse(_ASKS)

    def __setitem__(self, key: Operand, value: Operand, /) -> NoReturn:
        self.refuse(_ASKS)

    @property
    def T(self) -> NoReturn:
        self.refuse(_ASKS)

    def to_device(self, device: Device, /, *, stream: object = None) -> NoReturn:
        self.refuse(_ASKS)

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> HostArray:
        self.refuse(_ASKS)

    @classmethod
    def __torch_function__(
        cls, function: object, types: object, args: tuple[object, ...] = (), kwargs: object = None
    ) -> NoReturn:
        next(one for one in args if isinstance(one, cls)).refuse(_ASKS)

    __hash__ = object.__hash__
    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = _refused
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _refused
    __floordiv__ = __mod__ = __pow__ = __rpow__ = __matmul__ = _refused
    __and__ = __or__ = __xor__ = __lshift__ = __rshift__ = _refused
    __iter__ = __bool__ = __int__ = __float__ = __index__ = __neg__ = __invert__ = __abs__ = _refused
