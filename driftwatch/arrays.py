"""NumPy arrays by what they hold, as annotations name them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Singles = npt.NDArray[np.float32]
Integers = npt.NDArray[np.int64]
Indices = npt.NDArray[np.intp]
Codes = npt.NDArray[np.int8]
Flags = npt.NDArray[np.bool_]
Texts = npt.NDArray[np.object_]
