"""The forms in which a column of whole numbers may be handed over."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import Any

import numpy as np

FORMS: dict[str, Callable[[list[int]], Any]] = {
    "list": list,
    "tuple": tuple,
    "int64": lambda numbers: np.array(numbers, dtype=np.int64),
    "int32": lambda numbers: np.array(numbers, dtype=np.int32),
    "uint32": lambda numbers: np.array(numbers, dtype=np.uint32),
    "uint64": lambda numbers: np.array(numbers, dtype=np.uint64),
    "uint8": lambda numbers: np.array(numbers, dtype=np.uint8),
    "longlong": lambda numbers: np.array(numbers, dtype=np.longlong),
    "strided": lambda numbers: np.repeat(np.array(numbers, dtype=np.int64), 2)[::2],
    "strided-unsigned": lambda numbers: np.repeat(np.array(numbers, dtype=np.uint64), 2)[::2],
    "backwards": lambda numbers: np.array(numbers[::-1], dtype=np.int64)[::-1],
    "misaligned": lambda numbers: np.frombuffer(b"x" + np.array(numbers, dtype=np.int64).tobytes(), np.int64, offset=1),
    "read-only": lambda numbers: np.frombuffer(np.array(numbers, dtype=np.int64).tobytes(), np.int64),
    "array": lambda numbers: array("q", numbers),
    "array-unsigned": lambda numbers: array("Q", numbers),
    "memoryview": lambda numbers: memoryview(array("q", numbers)),
    "numpy-ints": lambda numbers: [np.int64(number) for number in numbers],
    "numpy-unsigned-ints": lambda numbers: [np.uint64(number) for number in numbers],
}
