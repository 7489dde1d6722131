"""Readable names of C++ symbols."""

from __future__ import annotations

import ctypes
from functools import cache


def demangled(symbol: str) -> str:
    """Return what C++ calls a symbol, as far as the machine's C++ library knows; else the symbol."""
    library = _library()
    if library is None or not symbol.startswith("_Z"):
        return symbol
    status = ctypes.c_int()
    address = library.__cxa_demangle(symbol.encode(), None, None, ctypes.byref(status))
    if not address:
        return symbol
    text = ctypes.string_at(address).decode("utf-8", "replace")
    ctypes.CDLL(None).free(ctypes.c_void_p(address))
    return text


@cache
def _library() -> ctypes.CDLL | None:
    try:
        library = ctypes.CDLL("libstdc++.so.6")
    except OSError:
        return None
    library.__cxa_demangle.restype = ctypes.c_void_p
    return library
