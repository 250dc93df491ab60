#!/usr/bin/gjs -m
// SPDX-License-Identifier: Apache-2.0
//
// observe.js [NAME]: prints what is posted under a name, also when the service was restarted in between.

import Gio from 'gi://Gio';
import GLib from 'gi://GLib';
import System from 'system';

const CENTER = 'org.carillon.NotificationCenter1';
const PATH = '/org/carillon/NotificationCenter1';
const name = ARGV[0] ?? 'com.example.Saved';
let subscription = 0;

// A program with a window would call without waiting (connection.call), so as never to block its main loop.
function call(connection, method, types, values) {
    return connection.call_sync(CENTER, PATH, CENTER, method, new GLib.Variant(types, values), null,
        Gio.DBusCallFlags.NONE, -1, null);
}

function appeared(connection, _name, owner) {
    // The signals are addressed to us, so no match rule is needed. With the unique name of the owner nobody else can
    // send us one.
    subscription = connection.signal_subscribe(owner, CENTER, null, PATH, null, Gio.DBusSignalFlags.NO_MATCH_RULE,
        (_connection, _sender, _path, _interface, signal, parameters) => received(signal, parameters));
    try {
        // The service that the bus started again still knows our observers; without this we would have two.
        call(connection, 'RemoveObservers', '(ss)', ['', '']);
        call(connection, 'AddObserver', '(ssa{sv})', [name, '', {retained: GLib.Variant.new_boolean(true)}]);
        print(`observing ${name}`);
    } catch (error) {
        printerr(`observe: ${error.message}`);
    }
}

function vanished(connection) {
    if (!connection || !subscription) {
        printerr(`observe: there is no ${connection ? 'notification center' : 'session bus'}`);
        System.exit(1);
    }
    connection.signal_unsubscribe(subscription);
    // Nobody else may call the service for hours.
    connection.call('org.freedesktop.DBus', '/org/freedesktop/DBus', 'org.freedesktop.DBus', 'StartServiceByName',
        new GLib.Variant('(su)', [CENTER, 0]), null, Gio.DBusCallFlags.NONE, -1, null, null);
}

function received(signal, parameters) {
    if (signal === 'Notification') {
        const [savedName, object, userInfo] = parameters.deepUnpack();
        const words = Object.keys(userInfo).sort().map(key => `${key}=${text(userInfo[key])}`);
        print([savedName, object, ...words].join(' '));
    } else if (signal === 'Dropped') {
        const [count, , reason] = parameters.deepUnpack();
        print(`lost ${count} (${reason})`);
    }
}

// A Number holds 53 bits of an int64 only; GLib's text of it is exact.
function text(value) {
    switch (value.get_type_string()) {
    case 's': return value.get_string()[0];
    case 'y': return value.get_byte();
    default: return value.print(false);
    }
}

Gio.bus_watch_name(Gio.BusType.SESSION, CENTER, Gio.BusNameWatcherFlags.AUTO_START, appeared, vanished);
new GLib.MainLoop(null, false).run();
