#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Prints notifications: observe.py [NAME]"""

import sys

import carillon

name = sys.argv[1] if len(sys.argv) > 1 else "com.example.Saved"


def text(value):
    return str(value).lower() if isinstance(value, bool) else str(value)


try:
    with carillon.Center() as center:
        events = center.observe(name, retained=True)
        print("observing", name, flush=True)
        for event in events:
            match event:
                case carillon.Notification(name, object_, user_info):
                    print(name, object_, *(f"{key}={text(user_info[key])}" for key in sorted(user_info)), flush=True)
                case carillon.Dropped(count, reason):
                    print(f"lost {count} ({reason})", flush=True)
                case carillon.Gap(reason):
                    print(f"may have missed some ({reason})", flush=True)
except (carillon.Error, ConnectionError) as error:
    sys.exit(str(error))
