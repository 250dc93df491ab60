#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Posts a notification: post.py [OBJECT [BYTES]]"""

import sys

import carillon

object_ = sys.argv[1] if len(sys.argv) > 1 else "report.txt"
size = int(sys.argv[2]) if len(sys.argv) > 2 else 4711

user_info = {"bytes": size, "clean": True, "title": "Annual report — 2026"}
try:
    with carillon.Center() as center:
        # Kept as the value of this name and object, for observers that come later.
        print("reached", center.post("com.example.Saved", object_, user_info, retain=True))
except (carillon.Error, ConnectionError) as error:
    sys.exit(str(error))
