#!/usr/bin/lua5.3
-- SPDX-License-Identifier: Apache-2.0
-- Posts a notification: post.lua [OBJECT [BYTES]]
local lgi = require "lgi"
local Gio, GLib = lgi.Gio, lgi.GLib

local CENTER, PATH = "org.carillon.NotificationCenter1", "/org/carillon/NotificationCenter1"
local object, bytes = arg[1] or "report.txt", arg[2] or "4711"

local user_info = {
    -- GLib.Variant("x", 4711) would do, up to 2^53: LGI takes numbers for doubles.
    bytes = GLib.Variant.parse(GLib.VariantType("x"), bytes, nil, nil),
    clean = GLib.Variant("b", true),
    title = GLib.Variant("s", "Annual report — 2026"),
}
-- Kept as the value of this name and object, for observers that come later.
local options = { retain = GLib.Variant("b", true) }
local post = GLib.Variant("(ssa{sv}a{sv})", { "com.example.Saved", object, user_info, options })

local reply
local bus, problem = Gio.bus_get_sync("SESSION")
if bus then reply, problem = bus:call_sync(CENTER, PATH, CENTER, "Post", post, nil, {}, -1) end
if not reply then
    io.stderr:write(tostring(problem), "\n") -- "GDBus.Error:", the name of the error, and its message
    os.exit(1)
end
print(("reached %d"):format(reply.value[1]))
