# SPDX-FileCopyrightText: The Carillon authors
# SPDX-License-Identifier: Apache-2.0
"""relay.py ADDRESS TARGET PORT: passes connections on from a free port of ADDRESS, which it prints, to TARGET. It is the
cable of a machine where there are no network namespaces: whoever pulls it stops this process."""

import asyncio
import contextlib
import sys


async def pump(reader, writer):
    with contextlib.suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    with contextlib.suppress(OSError):
        writer.close()


async def main(address, target, port):
    async def connected(reader, writer):
        try:
            there_reader, there_writer = await asyncio.open_connection(target, port)
        except OSError:
            writer.close()
            return
        await asyncio.gather(pump(reader, there_writer), pump(there_reader, writer))

    server = await asyncio.start_server(connected, address, 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
