# SPDX-FileCopyrightText: The Carillon authors
# SPDX-License-Identifier: Apache-2.0
"""How much lies unread between the service and the bus, by sock_diag(7)."""

import os
import re
import socket
import struct

NETLINK_SOCK_DIAG = 4
SOCK_DIAG_BY_FAMILY = 20
NLM_F_REQUEST = 1
UDIAG_SHOW_NAME, UDIAG_SHOW_PEER, UDIAG_SHOW_RQLEN = 1, 4, 16
UNIX_DIAG_NAME, UNIX_DIAG_PEER, UNIX_DIAG_RQLEN = 0, 2, 4
HEADER, REQUEST, MESSAGE, ATTRIBUTE = (struct.Struct(form) for form in ("IHHII", "BBHIIIII", "BBBBIII", "HH"))
ALL = 2**32 - 1


class BusSocket:
    """The socket of a process that leads to a bus."""

    def __init__(self, pid, path):
        """Raises OSError where there is none, or the kernel does not tell."""
        self._kernel = socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, NETLINK_SOCK_DIAG)
        for inode in inodes(pid):
            peer = self._ask(inode).get(UNIX_DIAG_PEER)
            if peer and self._ask(*struct.unpack("I", peer)).get(UNIX_DIAG_NAME, b"").rstrip(b"\0") == path.encode():
                self._ends = (inode, *struct.unpack("I", peer))
                return
        self.close()
        raise OSError(f"{pid} has no connection to {path}")

    def close(self):
        self._kernel.close()

    def unread(self):
        """Bytes that the process has not read, and bytes that the bus has not; nothing when the socket is gone."""
        lengths = [self._ask(inode).get(UNIX_DIAG_RQLEN) for inode in self._ends]
        return None if None in lengths else tuple(struct.unpack("II", length)[0] for length in lengths)

    def _ask(self, inode):
        """The attributes of a socket; none where there is no such."""
        what = UDIAG_SHOW_NAME | UDIAG_SHOW_PEER | UDIAG_SHOW_RQLEN
        question = REQUEST.pack(socket.AF_UNIX, 0, 0, ALL, inode, what, ALL, ALL)
        header = HEADER.pack(HEADER.size + len(question), SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST, 0, 0)
        self._kernel.send(header + question)
        answer = self._kernel.recv(8192)
        length, kind = HEADER.unpack_from(answer)[:2]
        if kind != SOCK_DIAG_BY_FAMILY:
            return {}
        attributes, offset = {}, HEADER.size + MESSAGE.size
        while offset + ATTRIBUTE.size <= length:
            size, kind = ATTRIBUTE.unpack_from(answer, offset)
            if size < ATTRIBUTE.size:
                break
            attributes[kind] = answer[offset + ATTRIBUTE.size:offset + size]
            offset += (size + 3) & ~3
        return attributes


def inodes(pid):
    """The inodes of the sockets that a process has open."""
    directory = f"/proc/{pid}/fd"
    for descriptor in os.listdir(directory):
        try:
            match = re.fullmatch(r"socket:\[(\d+)\]", os.readlink(os.path.join(directory, descriptor)))
        except OSError:
            continue
        if match:
            yield int(match[1])
