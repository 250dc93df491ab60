# SPDX-License-Identifier: Apache-2.0
"""Prints notifications: observe.py [NAME]"""

import asyncio
import sys

from dbus_fast import DBusError, Variant
from dbus_fast.aio import MessageBus

CENTER, PATH = "org.carillon.NotificationCenter1", "/org/carillon/NotificationCenter1"
BUS, BUS_PATH = "org.freedesktop.DBus", "/org/freedesktop/DBus"
name = sys.argv[1] if len(sys.argv) > 1 else "com.example.Saved"


async def main():
    bus = await MessageBus().connect()

    async def interface(destination, path):
        # Introspection has the bus start the service.
        introspection = await bus.introspect(destination, path)
        return bus.get_proxy_object(destination, path, introspection).get_interface(destination)

    daemon, center = await interface(BUS, BUS_PATH), await interface(CENTER, PATH)
    owners = asyncio.Queue()
    daemon.on_name_owner_changed(lambda name, _old, new: owners.put_nowait(new) if name == CENTER else None)
    # A proxy follows the owner of its name, and believes only that.
    center.on_notification(notification)
    center.on_dropped(dropped)
    owners.put_nowait("the first")
    while True:
        if await owners.get():
            # A service that was started anew remembers us. Begin from nothing, or registrations would add up.
            await center.call_remove_observers("", "")
            await center.call_add_observer(name, "", {"retained": Variant("b", True)})
            print("observing", name, flush=True)
        else:
            await daemon.call_start_service_by_name(CENTER, 0)


def notification(name, object_, user_info, _observers, _poster, _serial, _sequence):
    print(name, object_, *(f"{key}={text(user_info[key].value)}" for key in sorted(user_info)), flush=True)


def dropped(count, _observers, reason):
    print(f"lost {count} ({reason})", flush=True)


def text(value):
    return str(value).lower() if isinstance(value, bool) else str(value)


try:
    asyncio.run(main())
except DBusError as error:
    sys.exit(f"{error.type}: {error.text}")
except OSError as error:
    sys.exit(f"no session bus: {error}")
