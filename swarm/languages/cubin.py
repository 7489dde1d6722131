"""What a cubin says about its kernels, and which cubins an object holds. Pure ELF parsing, no tools.

The layout of the `.nv.info` sections is not documented by NVIDIA; a test compares the result with what ptxas
says. What a cubin does not say (bytes spilled) is left 0 for whoever has the compiler's log.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from swarm.errors import BadInput

ELF = b"\x7fELF\x02\x01"
EM_CUDA = 190
SHT_SYMTAB = 2
SYMBOL_BYTES = 24
STT_FUNC = 2
SHN_UNDEF = 0
INFO = ".nv.info"
TEXT = ".text."
SHARED = ".nv.shared."

FATBIN = ".nv_fatbin"
FATBIN_MAGIC, FATBIN_ELF = 0xBA55ED50, 2

NO_VALUE, BYTE_VALUE, HALF_VALUE, SIZED_VALUE = 1, 2, 3, 4
"""How an attribute of .nv.info is stored: within its 4-byte word, or after it with its length."""
MAX_THREADS = 0x05
REQUIRED_THREADS = 0x10
FRAME_SIZE = 0x11
MIN_STACK_SIZE = 0x12
PARAMETER = 0x17
REGCOUNT = 0x2F
CLUSTER = 0x3D
LARGE_PARAMETER = 0x45
RESERVED = ".nv.shared.reserved.0"
"""In cubins with this section, each kernel's shared memory begins with so much of the system's own:"""
RESERVED_BYTES = 1024


@dataclass(frozen=True, slots=True)
class Kernel:
    """One entry of a cubin."""

    symbol: str
    registers: int
    static_smem_bytes: int
    frame_bytes: int
    """Of the kernel itself: its local arrays and what it spills."""
    stack_bytes: int
    """With all that it calls: local memory per thread."""
    parameters: tuple[tuple[int, int], ...]
    """(offset, size) in bytes."""
    max_threads: int
    """Of a block, by __launch_bounds__; 0 if the source does not say."""
    cluster: tuple[int, int, int] | None
    """By __cluster_dims__: what a launch must use."""


@dataclass(frozen=True, slots=True)
class _Section:
    name: str
    kind: int
    data: bytes
    size: int
    link: int
    info: int


def kernels(cubin: bytes) -> dict[str, Kernel]:
    """Return the kernels of a cubin by symbol."""
    try:
        return _kernels(cubin)
    except (struct.error, IndexError, ValueError) as error:
        raise BadInput(f"this is no whole cubin: {error}") from None


def embedded(shared_object: bytes) -> list[bytes]:
    """Return the cubins in an object that nvcc made without compressing them."""
    try:
        found = [one.data for one in _sections(shared_object, machine=None) if one.name == FATBIN]
        return [cubin for data in found for cubin in _fatbin(data)]
    except (struct.error, IndexError, ValueError) as error:
        raise BadInput(f"this is no whole object: {error}") from None


def _fatbin(data: bytes) -> Iterator[bytes]:
    """Yield the cubins of a section: containers, one after the other, each with entries for architectures."""
    at = 0
    while at + 16 <= len(data):
        magic, _, header_bytes, size = struct.unpack_from("<IHHQ", data, at)
        if magic != FATBIN_MAGIC:  # padding
            at += 8
            continue
        at, end = at + header_bytes, min(at + header_bytes + size, len(data))
        while at + 16 <= end:
            kind, _, entry_header_bytes, entry_bytes = struct.unpack_from("<HHIQ", data, at)
            start = at + entry_header_bytes
            if kind == FATBIN_ELF and data.startswith(ELF, start):
                yield data[start : start + entry_bytes]
            if start + entry_bytes <= at:
                break
            at = start + entry_bytes
        at = max(at, end)


def _kernels(cubin: bytes) -> dict[str, Kernel]:
    sections = _sections(cubin)
    by_name = {section.name: section for section in sections}
    names = _symbols(sections)
    per_kernel: dict[int, dict[str, int]] = {REGCOUNT: {}, FRAME_SIZE: {}, MIN_STACK_SIZE: {}}
    if (info := by_name.get(INFO)) is not None:
        for attribute, value in _attributes(info.data):
            if attribute in per_kernel:
                symbol, number = struct.unpack_from("<II", value)
                per_kernel[attribute][names[symbol]] = number
    reserved_bytes = RESERVED_BYTES if RESERVED in by_name else 0
    found = {}
    for section in sections:
        symbol_name = section.name.removeprefix(f"{INFO}.")
        if symbol_name == section.name or TEXT + symbol_name not in by_name:
            continue
        entry = _entry(section.data)
        shared = by_name.get(SHARED + symbol_name)
        found[symbol_name] = Kernel(
            symbol_name,
            per_kernel[REGCOUNT].get(symbol_name, by_name[TEXT + symbol_name].info >> 24),
            0 if shared is None else shared.size - reserved_bytes,
            per_kernel[FRAME_SIZE].get(symbol_name, 0),
            per_kernel[MIN_STACK_SIZE].get(symbol_name, 0),
            tuple(entry.parameters[ordinal] for ordinal in sorted(entry.parameters)),
            entry.max_threads,
            entry.cluster,
        )
    return found


@dataclass(slots=True)
class _Entry:
    parameters: dict[int, tuple[int, int]]
    max_threads: int = 0
    cluster: tuple[int, int, int] | None = None


def _entry(info: bytes) -> _Entry:
    """Read the .nv.info section of one kernel."""
    entry = _Entry({})
    for attribute, value in _attributes(info):
        if attribute == PARAMETER:
            _, ordinal, offset, packed = struct.unpack("<IHHI", value)
            entry.parameters[ordinal] = (offset, packed >> 18)
        elif attribute == LARGE_PARAMETER:
            _, ordinal, offset, packed = struct.unpack("<IHHI", value)
            entry.parameters[ordinal] = (offset, packed & 0xFFFF)
        elif attribute in (MAX_THREADS, REQUIRED_THREADS):
            x, y, z = struct.unpack("<III", value)
            entry.max_threads = x * y * z
        elif attribute == CLUSTER:
            entry.cluster = struct.unpack("<III", value)
    return entry


def _attributes(info: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield (attribute, value) of a .nv.info section."""
    at = 0
    while at + 4 <= len(info):
        form, attribute, size = struct.unpack_from("<BBH", info, at)
        at += 4
        if form == SIZED_VALUE:
            yield attribute, info[at : at + size]
            at += size
        elif form in (NO_VALUE, BYTE_VALUE, HALF_VALUE):
            yield attribute, struct.pack("<H", size)
        else:
            raise struct.error(f"form {form} of attribute {attribute:#x} is unknown")


def _sections(cubin: bytes, machine: int | None = EM_CUDA) -> list[_Section]:
    if not cubin.startswith(ELF):
        raise struct.error("not a 64-bit little-endian ELF file")
    (found_machine,) = struct.unpack_from("<H", cubin, 18)
    if machine is not None and found_machine != machine:
        raise struct.error(f"machine {found_machine} is not CUDA")
    (table,) = struct.unpack_from("<Q", cubin, 40)
    entry_bytes, count, names_at = struct.unpack_from("<HHH", cubin, 58)
    headers = [struct.unpack_from("<IIQQQQIIQQ", cubin, table + k * entry_bytes) for k in range(count)]
    names = cubin[headers[names_at][4] : headers[names_at][4] + headers[names_at][5]]
    found = []
    for name, kind, _, _, offset, size, link, info, _, _ in headers:
        data = b"" if kind == 8 else cubin[offset : offset + size]  # SHT_NOBITS holds nothing
        found.append(_Section(_string(names, name), kind, data, size, link, info))
    return found


def _symbols(sections: list[_Section]) -> list[str]:
    for section in sections:
        if section.kind == SHT_SYMTAB:
            strings = sections[section.link].data
            return [
                _string(strings, struct.unpack_from("<I", section.data, at)[0])
                for at in range(0, len(section.data), SYMBOL_BYTES)
            ]
    return []


def _string(table: bytes, at: int) -> str:
    return table[at : table.index(b"\0", at)].decode()
