"""Length-prefixed messages over a stream socket, with file descriptors beside them."""

from __future__ import annotations

import socket
import struct
from collections.abc import Sequence

MAX_FDS = 4
MAX_BYTES = 1 << 30
HEADER = struct.Struct("!I")
READY, VERDICT, COMPARISON, ERROR = b"R", b"V", b"C", b"E"
"""The first byte of what a judge says."""


class Closed(Exception):
    """The other end is gone."""


def send(peer: socket.socket, data: bytes, fds: Sequence[int] = ()) -> None:
    """Send one message; Closed if nobody can receive it any more, TimeoutError as the socket is set."""
    try:
        if fds:
            socket.send_fds(peer, [HEADER.pack(len(data))], list(fds))
        else:
            peer.sendall(HEADER.pack(len(data)))
        peer.sendall(data)
    except (BrokenPipeError, ConnectionResetError):
        raise Closed from None


def receive(peer: socket.socket) -> tuple[bytes, list[int]]:
    """Return the next message and the descriptors that came with it."""
    try:
        header, fds, _, _ = socket.recv_fds(peer, HEADER.size, MAX_FDS)
        header += _exactly(peer, HEADER.size - len(header)) if header else b""
        if not header:
            raise Closed
        (length,) = HEADER.unpack(header)
        if length > MAX_BYTES:
            raise Closed
        return _exactly(peer, length), list(fds)
    except ConnectionResetError:
        raise Closed from None


def _exactly(peer: socket.socket, length: int) -> bytes:
    data = bytearray()
    while len(data) < length:
        part = peer.recv(min(length - len(data), 1 << 20))
        if not part:
            raise Closed
        data += part
    return bytes(data)
