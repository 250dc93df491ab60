# SPDX-License-Identifier: Apache-2.0
"""Posts a notification: post.py [OBJECT [BYTES]]"""

import asyncio
import sys

from dbus_fast import DBusError, Variant
from dbus_fast.aio import MessageBus

CENTER, PATH = "org.carillon.NotificationCenter1", "/org/carillon/NotificationCenter1"
object_ = sys.argv[1] if len(sys.argv) > 1 else "report.txt"
size = int(sys.argv[2]) if len(sys.argv) > 2 else 4711


async def main():
    bus = await MessageBus().connect()
    center = bus.get_proxy_object(CENTER, PATH, await bus.introspect(CENTER, PATH)).get_interface(CENTER)
    user_info = {
        "bytes": Variant("x", size),
        "clean": Variant("b", True),
        "title": Variant("s", "Annual report — 2026"),
    }
    # Kept as the value of this name and object, for observers that come later.
    options = {"retain": Variant("b", True)}
    print("reached", await center.call_post("com.example.Saved", object_, user_info, options))


try:
    asyncio.run(main())
except DBusError as error:
    sys.exit(f"{error.type}: {error.text}")
except OSError as error:
    sys.exit(f"no session bus: {error}")
