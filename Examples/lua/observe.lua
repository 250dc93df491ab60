#!/usr/bin/lua5.3
-- SPDX-License-Identifier: Apache-2.0
-- Prints notifications: observe.lua [NAME]
local lgi = require "lgi"
local Gio, GLib = lgi.Gio, lgi.GLib

local CENTER, PATH = "org.carillon.NotificationCenter1", "/org/carillon/NotificationCenter1"
local BUS, BUS_PATH = "org.freedesktop.DBus", "/org/freedesktop/DBus"
local name = arg[1] or "com.example.Saved"
local subscription
io.stdout:setvbuf("line")

local function fail(message)
    io.stderr:write(tostring(message), "\n")
    os.exit(1)
end

local function received(_, _, _, _, signal, arguments)
    if signal == "Notification" then
        local words = {}
        for key, value in arguments:get_child_value(2):pairs() do
            -- In Lua numbers of LGI are doubles; GLib prints them as they are.
            local text = value:get_type_string() == "s" and value:get_string() or value:print(false)
            table.insert(words, { key, " " .. key .. "=" .. text })
        end
        table.sort(words, function(one, other) return one[1] < other[1] end)
        for index, word in ipairs(words) do words[index] = word[2] end
        print(arguments.value[1] .. " " .. arguments.value[2] .. table.concat(words))
    elseif signal == "Dropped" then
        print(("lost %d (%s)"):format(arguments.value[1], arguments.value[3]))
    end
end

-- There is a service: the first, or another one after a restart.
local function appeared(connection, _, owner)
    -- Signals are addressed to this connection, so the bus needs no match rule. GLib drops what others send.
    subscription = connection:signal_subscribe(owner, CENTER, nil, PATH, nil, { "NO_MATCH_RULE" }, received)
    local function call(method, arguments)
        local reply, problem = connection:call_sync(owner, PATH, CENTER, method, arguments, nil, {}, -1)
        if not reply then fail(problem) end
    end
    -- A service that was started anew remembers us. Begin from nothing, or registrations would add up.
    call("RemoveObservers", GLib.Variant("(ss)", { "", "" }))
    call("AddObserver", GLib.Variant("(ssa{sv})", { name, "", { retained = GLib.Variant("b", true) } }))
    print("observing " .. name)
end

local function vanished(connection)
    if not connection then fail("no session bus") end
    if not subscription then fail("no notification center, and the bus can't start one") end
    connection:signal_unsubscribe(subscription)
    local start = GLib.Variant("(su)", { CENTER, 0 })
    connection:call(BUS, BUS_PATH, BUS, "StartServiceByName", start, nil, {}, -1)
end

Gio.bus_watch_name("SESSION", CENTER, { "AUTO_START" }, lgi.GObject.Closure(appeared), lgi.GObject.Closure(vanished))
GLib.MainLoop():run()
