"""Reads arrays from pickles as data: nothing that a pickle names is ever called.

A pickle is a program that Python's unpickler runs, and even what a restricted unpickler allows may crash the process:
numpy arrays by forged states, nested tuples by being too deep to hash. So the instructions are interpreted here, as
parsed by `pickletools`; those needed for arrays, dictionaries and texts are supported, all others refused.
"""

import pickletools
import zipfile
from collections.abc import Callable
from enum import Enum
from io import BytesIO
from pathlib import Path
from typing import IO, Any

import numpy as np

from vsdn.datasets.base import read_source, shorten_error
from vsdn.errors import DataError

HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
NUMBERS = ("f4", "f8")
OBJECTS = ("O", "O4", "O8")


def read_pickled(path: Path, name: str) -> Any:
    """The one object in an array of an .npz file; its arrays must be of floating-point numbers."""
    try:
        with zipfile.ZipFile(BytesIO(read_source(path))) as archive, archive.open(f"{name}.npy") as file:
            HEADERS[np.lib.format.read_magic(file)](file)
            return _follow(file)
    except DataError:
        raise
    except Exception as error:  # a hostile or damaged file can raise anything
        raise DataError(f"{path} should be an .npz file with {name} of arrays alone: {shorten_error(error)}") from error


def _follow(file: IO[bytes]) -> Any:
    """The object that a pickle describes."""
    stack = _Stack()
    for instruction, argument, _ in pickletools.genops(file):
        if instruction.name not in STEPS:
            raise _Refused(f"it has the instruction {instruction.name}, which no array, dictionary or text needs")
        STEPS[instruction.name](stack, argument)
    if len(stack.values) != 1:
        raise _Refused(f"it should come to one value, but comes to {len(stack.values)}")
    return stack.values[0]


class _Refused(ValueError):
    """A pickle asks for something that no file of arrays needs."""


class _Name(Enum):
    """The names that pickles of arrays refer to."""

    ARRAY = "an array without content, which is told later"
    CLASS = "the class of arrays"
    KIND = "the kind of an array's numbers"
    BYTES = "bytes, as the first protocols have them"
    BUFFER = "a whole array, as protocol 5 has it"


NAMES = {
    "numpy ndarray": _Name.CLASS,
    "numpy dtype": _Name.KIND,
    "_codecs encode": _Name.BYTES,
    **{
        f"numpy.{core}.{name}": what
        for core in ("_core", "core")  # numpy 2 and 1
        for name, what in {"multiarray _reconstruct": _Name.ARRAY, "numeric _frombuffer": _Name.BUFFER}.items()
    },
}


class _Kind:
    """The dtype of an array: its code, such as f4, and the byte order."""

    def __init__(self, text: str):
        if text not in (*NUMBERS, *OBJECTS):
            raise _Refused(f"its arrays should be of f4, f8 or objects, but one is of {text[:20]!r}")
        self.text, self.order = text, "="

    def tell(self, state: Any) -> "_Kind":
        """The dtype with its byte order set; refuses subarrays and fields."""
        match state:
            case (_, "<" | ">" | "=" | "|" as order, None, None, None, *_):
                self.order = order
                return self
        raise _Refused("its arrays should be of numbers without parts and fields, but one is not")

    def numbers(self, raw: Any, shape: Any, *, by_column: bool) -> np.ndarray:
        """The array with these bytes."""
        raw = raw.encode("latin-1") if isinstance(raw, str) else raw  # bytes pickled by Python 2
        if self.text not in NUMBERS or not isinstance(raw, bytes | bytearray):
            raise _Refused("its arrays should be of numbers or hold one object, but one is not")
        if not isinstance(shape, tuple) or not all(type(size) is int and size >= 0 for size in shape):
            raise _Refused("its arrays should have a shape of whole numbers, but one has not")
        kind = np.dtype(self.order.replace("|", "=") + self.text)
        return np.frombuffer(raw, kind).reshape(shape, order="F" if by_column else "C")


class _Array:
    """An array whose content is set after its creation."""

    content: Any = None

    def tell(self, state: Any) -> Any:
        """Sets and returns the content: numbers, or the only entry of an array of objects."""
        match state:
            case (_, (), _Kind(text="O" | "O4" | "O8"), _, [content]):
                self.content = content
            case (_, shape, _Kind() as kind, bool() | int() as by_column, raw):
                self.content = kind.numbers(raw, shape, by_column=bool(by_column))
            case _:
                raise _Refused("its arrays should be of numbers or hold one object, but one is not")
        return self.content


_MARK = object()


class _Stack:
    """The state that the instructions work on: a stack of values, and a memo of some."""

    def __init__(self):
        self.values: list[Any] = []
        self.memo: dict[int, Any] = {}

    def push(self, value: Any) -> None:
        self.values.append(value)

    def last(self, count: int) -> list[Any]:
        """Removes and returns the last values, in order."""
        if count > len(self.values):
            raise _Refused("it takes more values than there are")
        start = len(self.values) - count
        taken, self.values[start:] = self.values[start:], []
        return taken

    def since_mark(self) -> list[Any]:
        """Removes the last mark and the values above it, and returns these in order."""
        taken = []
        while (value := self.values.pop()) is not _MARK:
            taken.append(value)
        return taken[::-1]

    def top(self, kind: type) -> Any:
        """The value on top; refuses one of another class."""
        if not isinstance(self.values[-1], kind):
            raise _Refused(f"a {kind.__name__} should be filled, but it is none")
        return self.values[-1]

    def extend(self, items: list[Any]) -> None:
        """Appends these to the list on top."""
        self.top(list).extend(items)

    def begin(self, items: list[Any]) -> None:
        """Pushes a dictionary of these keys and values."""
        self.push({})
        self.fill(items)

    def fill(self, items: list[Any]) -> None:
        """Adds these keys and values to the dictionary on top; keys must be texts: hashing others may be costly."""
        for key, value in zip(items[::2], items[1::2], strict=True):
            if type(key) is not str:
                raise _Refused("its dictionaries should have texts for keys, but one has not")
            self.top(dict)[key] = value

    def name(self, text: str) -> None:
        """Pushes the meaning of this name; nothing is imported."""
        if text not in NAMES:
            raise _Refused(f"it asks for {text.replace(' ', '.')}, which is no array, dictionary or text")
        self.push(NAMES[text])

    def get(self, number: int) -> None:
        """Pushes a value of the memo; for an array its content, if that is set."""
        value = self.memo[number]
        self.push(value if not isinstance(value, _Array) or value.content is None else value.content)

    def make(self) -> None:
        """Replaces a name and its arguments by the object they describe."""
        match self.last(2):
            case [_Name.ARRAY, (_Name.CLASS, _, _)]:
                self.push(_Array())
            case [_Name.KIND, (str(text), *_)]:
                self.push(_Kind(text))
            case [_Name.BYTES, (str(text), "latin1" | "latin-1")]:
                self.push(text.encode("latin-1"))
            case [_Name.BUFFER, (raw, _Kind() as kind, shape, "C" | "F" as order)]:
                self.push(kind.numbers(raw, shape, by_column=order == "F"))
            case _:
                raise _Refused("it makes what is no array")

    def tell(self) -> None:
        """Hands the state on top to the object below it."""
        target, state = self.last(2)
        if not isinstance(target, _Kind | _Array):
            raise _Refused("it gives a state to what is no array")
        self.push(target.tell(state))


PLAIN = (  # their argument is the value
    *("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT"),
    *("STRING", "BINSTRING", "SHORT_BINSTRING", "UNICODE", "SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8"),
    *("BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8"),
)
STEPS: dict[str, Callable[[_Stack, Any], Any]] = {
    **dict.fromkeys(("PROTO", "FRAME", "STOP"), lambda _stack, _: None),
    **dict.fromkeys(PLAIN, _Stack.push),
    **dict.fromkeys(("PUT", "BINPUT", "LONG_BINPUT"), lambda stack, n: stack.memo.update({n: stack.values[-1]})),
    **dict.fromkeys(("GET", "BINGET", "LONG_BINGET"), _Stack.get),
    "MEMOIZE": lambda stack, _: stack.memo.update({len(stack.memo): stack.values[-1]}),
    "MARK": lambda stack, _: stack.push(_MARK),
    "NONE": lambda stack, _: stack.push(None),
    "NEWTRUE": lambda stack, _: stack.push(True),
    "NEWFALSE": lambda stack, _: stack.push(False),
    "EMPTY_TUPLE": lambda stack, _: stack.push(()),
    "TUPLE1": lambda stack, _: stack.push(tuple(stack.last(1))),
    "TUPLE2": lambda stack, _: stack.push(tuple(stack.last(2))),
    "TUPLE3": lambda stack, _: stack.push(tuple(stack.last(3))),
    "TUPLE": lambda stack, _: stack.push(tuple(stack.since_mark())),
    "EMPTY_LIST": lambda stack, _: stack.push([]),
    "LIST": lambda stack, _: stack.push(stack.since_mark()),
    "APPEND": lambda stack, _: stack.extend(stack.last(1)),
    "APPENDS": lambda stack, _: stack.extend(stack.since_mark()),
    "EMPTY_DICT": lambda stack, _: stack.push({}),
    "DICT": lambda stack, _: stack.begin(stack.since_mark()),
    "SETITEM": lambda stack, _: stack.fill(stack.last(2)),
    "SETITEMS": lambda stack, _: stack.fill(stack.since_mark()),
    "GLOBAL": _Stack.name,
    "STACK_GLOBAL": lambda stack, _: stack.name(" ".join(stack.last(2))),
    "REDUCE": lambda stack, _: stack.make(),
    "BUILD": lambda stack, _: stack.tell(),
}
