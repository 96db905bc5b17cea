"""Functions compiled by JAX, shared between calls that compute the same, whatever objects they were made of.

Tracing writes down what a function does: its operations, and the values of what it closes over. A model that was
trained further, NumPy memory that was written to, a loss that reads a global: the same objects do something else.
So every call traces anew, which evaluates nothing, and a program is found by what it does rather than by the objects
that it came from. What a trace closes over becomes an operand: other weights need no other program.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol, TypeAlias, TypeGuard, TypeVar, TypeVarTuple

import numpy as np

from reliance._core.kinds import Array

# Programs that are kept, the least recently used go first; and the bytes of constants that may be kept with them.
MOST_PROGRAMS = 64
MOST_BYTES = 2**28

# Parameters of operations that only say how they are differentiated: new functions at each trace.
_DERIVATIVES = frozenset({"jvp_jaxpr_fun", "jvp_jaxpr_thunk", "fwd_jaxpr_thunk", "bwd"})


Given = TypeVarTuple("Given")
Answer = TypeVar("Answer")


class _Variable(Protocol):
    """A variable of a trace, or with ``val`` a number in it."""

    aval: object
    val: object


class _Primitive(Protocol):
    name: str


class _Step(Protocol):
    primitive: _Primitive
    params: Mapping[str, object]
    invars: Sequence[_Variable]
    outvars: Sequence[_Variable]


class _Jaxpr(Protocol):
    """What JAX writes down of a function."""

    constvars: Sequence[_Variable]
    invars: Sequence[_Variable]
    outvars: Sequence[_Variable]
    eqns: Sequence[_Step]


class _Closed(Protocol):
    """The same with the values of what the function closes over."""

    jaxpr: _Jaxpr
    consts: Sequence[Array]


@dataclass(frozen=True, eq=False)
class _Program:
    run: Callable[[list[Array], list[Array]], list[Array]]
    nbytes: int


_programs: OrderedDict[Hashable, _Program] = OrderedDict()
_lock = threading.Lock()


def traced(function: Callable[[*Given], Answer], name: str, baked: Baked | None = None) -> Callable[[*Given], Answer]:
    """``function`` of arrays, compiled by JAX. It is traced once for each shape of its operands, at the first call.

    Make it anew for each call of the library: it holds the values that it closed over when it was traced. Functions
    that share ``baked`` must read the same values.
    """
    import jax

    known: dict[Hashable, tuple[_Program, list[Array], object]] = {}
    noted = {} if baked is None else baked

    def call(*data: *Given) -> Answer:
        leaves, tree = jax.tree.flatten(data)
        shapes = (tree, tuple((leaf.shape, leaf.dtype, getattr(leaf, "weak_type", False)) for leaf in leaves))
        if shapes not in known:
            closed, answer = _trace(function, data, noted)
            consts = [jax.device_put(c) if isinstance(c, np.ndarray) else c for c in closed.consts]
            known[shapes] = _find(closed, name), consts, jax.tree.structure(answer)
        program, consts, structure = known[shapes]
        found: Answer = jax.tree.unflatten(structure, program.run(consts, leaves))
        return found

    return call


class StaleError(ValueError):
    """A jitted function of the user's own has old values for some shapes of its operands, and new ones for others."""


# What the user's own jitted functions read, by where they were written: the values in a trace of each.
Baked: TypeAlias = dict[Hashable, object]


def _trace(function: Callable[..., object], data: tuple[object, ...], baked: Baked) -> tuple[_Closed, object]:
    """What the function does now, and the shapes of its answers."""
    import jax

    def make() -> tuple[_Closed, object]:
        # A new function, because JAX remembers the traces of those it has seen.
        found: tuple[_Closed, object] = jax.make_jaxpr(lambda *data: function(*data), return_shape=True)(*data)
        return found

    # It also remembers the traces of jitted functions of the user's own, for the shapes they were called with. If what
    # they read (self.w) is another array now, it is the old one for some shapes and the new one for others.
    traces = make()
    if not _agrees(baked, _own_jits(traces[0].jaxpr)):
        if hasattr(jax, "make_user_context"):  # then nothing is remembered; not always, because JAX keeps those traces
            with _context()(next(_tokens)):
                traces = make()
        if not _agrees(baked, _own_jits(traces[0].jaxpr)):
            raise StaleError(
                "a jitted function in the model or the loss reads values that changed after JAX traced it, so that it "
                "is another function for other numbers of rows: pass them as arguments, or call its clear_cache()"
            )
    return traces


_tokens = itertools.count()


@functools.cache
def _context() -> Callable[[int], AbstractContextManager[object]]:
    """A value that is part of the key of JAX's traces."""
    import jax

    made: Callable[[int], AbstractContextManager[object]] = jax.make_user_context(None)
    return made


def _agrees(baked: Baked, found: list[tuple[Hashable, object]]) -> bool:
    """Whether functions have the values that they had in the first trace, which are noted."""
    first = {where: values for where, values in found if where not in baked}
    several = {where for where, values in found if where in first and values != first[where]}
    if not all(baked[where] is None or baked[where] == values for where, values in found if where in baked):
        return False
    # Code that makes several functions, a layer each: they cannot be told apart.
    baked.update({where: None if where in several else values for where, values in first.items()})
    return True


def _own_jits(jaxpr: _Jaxpr) -> list[tuple[Hashable, object]]:
    """Jitted functions inside that are not of JAX: where they were written, of what shapes, and the values in them."""
    import jax

    found: list[tuple[Hashable, object]] = []
    home = os.path.dirname(jax.__file__)
    for step in jaxpr.eqns:
        for inner in _inner(step):
            body, consts = _parts(inner)
            info = getattr(body, "debug_info", None)
            place = str(getattr(info, "func_src_info", ""))
            if step.primitive.name in ("pjit", "jit") and home not in place:
                shapes = tuple((str(c.dtype), c.shape) for c in consts)
                numbers = [atom.val for one in body.eqns for atom in one.invars if hasattr(atom, "val")]
                floats = tuple(repr(v) for v in numbers if np.asarray(v).dtype.kind == "f")  # integers may count rows
                values = (tuple(map(_Seen().value, consts)), floats)
                found.append(((place, shapes, len(floats), tuple(one.primitive.name for one in body.eqns)), values))
            found += _own_jits(body)
    return found


def _is_closed(value: object) -> TypeGuard[_Closed]:
    return hasattr(value, "jaxpr") and hasattr(value, "consts")


def _is_jaxpr(value: object) -> TypeGuard[_Jaxpr]:
    return hasattr(value, "eqns")


def _parts(inner: _Jaxpr | _Closed) -> tuple[_Jaxpr, Sequence[Array]]:
    body: _Jaxpr = getattr(inner, "jaxpr", inner)  # type: ignore[arg-type]  # what has no trace inside is one
    return body, getattr(inner, "consts", ())


def _inner(step: _Step) -> Iterator[_Jaxpr | _Closed]:
    """The traces inside of a step: of a jitted function, of a loop, of each branch."""
    for value in step.params.values():
        for one in value if isinstance(value, tuple | list) else (value,):
            if hasattr(getattr(one, "jaxpr", one), "eqns"):
                yield one


def _find(closed: _Closed, name: str) -> _Program:
    """The program of a trace, the one that is kept if there is one."""
    import jax

    seen = _Seen()
    key = (name, seen.jaxpr(closed.jaxpr))
    with _lock:
        if key in _programs:
            _programs.move_to_end(key)
            return _programs[key]
    jaxpr = closed.jaxpr

    def run(consts: list[Array], leaves: list[Array]) -> list[Array]:
        answers: list[Array] = jax.core.eval_jaxpr(jaxpr, consts, *leaves)
        return answers

    run.__name__ = name  # what JAX's logs call it
    program = _Program(jax.jit(run), seen.nbytes)
    with _lock:
        _programs[key] = program
        while len(_programs) > MOST_PROGRAMS or _kept_bytes() > MOST_BYTES:
            if len(_programs) == 1:
                break
            _programs.popitem(last=False)
    return program


def _kept_bytes() -> int:
    return sum(program.nbytes for program in _programs.values())


class _Seen:
    """What a trace does, as something hashable: arrays by their values, variables by their order.

    Anything else is compared as it compares itself, functions by identity, and lives as long as the key does; so no
    later object can be mistaken for it. ``nbytes`` counts the arrays inside, which a program keeps.
    """

    def __init__(self) -> None:
        self.nbytes = 0

    def jaxpr(self, jaxpr: _Jaxpr) -> Hashable:
        numbers: dict[_Variable, int] = {}

        def new(variables: Sequence[_Variable]) -> tuple[str, ...]:
            for variable in variables:
                numbers.setdefault(variable, len(numbers))
            return tuple(str(variable.aval) for variable in variables)

        def atoms(variables: Sequence[_Variable]) -> Iterator[Hashable]:
            for atom in variables:
                yield (str(atom.aval), self.value(atom.val)) if hasattr(atom, "val") else numbers[atom]

        operands = new(jaxpr.constvars), new(jaxpr.invars)
        steps = []
        for step in jaxpr.eqns:
            settings = tuple((k, self.value(v)) for k, v in sorted(step.params.items()) if k not in _DERIVATIVES)
            steps.append((step.primitive.name, tuple(atoms(step.invars)), settings, new(step.outvars)))
        return operands, tuple(steps), tuple(atoms(jaxpr.outvars))

    def value(self, value: object) -> Hashable:
        if value is None or isinstance(value, bool | int | float | complex | str):
            return type(value).__name__, repr(value)  # 1, 1.0 and True are equal, 0.0 and -0.0, too
        if _is_closed(value):
            return self.jaxpr(value.jaxpr), tuple(map(self.value, value.consts))
        if _is_jaxpr(value):
            return self.jaxpr(value)
        if isinstance(value, tuple | list):
            return type(value).__name__, tuple(map(self.value, value))
        if isinstance(value, dict):
            return "dict", tuple((repr(k), self.value(v)) for k, v in value.items())
        if hasattr(value, "shape") and hasattr(value, "dtype"):
            return self._array(value)
        try:
            hash(value)
        except TypeError:
            return _Itself(value)
        return value

    def _array(self, value: object) -> Hashable:
        try:
            host = np.asarray(value)
        except TypeError:  # JAX's typed random keys
            return _Itself(value)
        self.nbytes += host.nbytes
        digest = hashlib.blake2b(np.ascontiguousarray(host).tobytes(), digest_size=16).digest()
        return str(host.dtype), host.shape, digest


@dataclass(frozen=True, eq=False)
class _Itself:
    """An object that cannot be compared: it is held, and nothing else equals it."""

    value: object
