#!/usr/bin/gjs -m
// SPDX-License-Identifier: Apache-2.0
//
// post.js [OBJECT [BYTES]]: posts that a file was saved, as a value that stays for those who come later.

import Gio from 'gi://Gio';
import GLib from 'gi://GLib';
import System from 'system';

const CENTER = 'org.carillon.NotificationCenter1';
const [object = 'report.txt', bytes = '4711'] = ARGV;
try {
    const userInfo = {
        // JavaScript has no integers, so each value says its type. A Number holds 53 bits of an int64 only.
        bytes: GLib.Variant.parse(new GLib.VariantType('x'), bytes, null, null),
        clean: new GLib.Variant('b', true),
        title: new GLib.Variant('s', 'Annual report — 2026'),
    };
    const options = {retain: new GLib.Variant('b', true)};
    const reply = Gio.DBus.session.call_sync(CENTER, '/org/carillon/NotificationCenter1', CENTER, 'Post',
        new GLib.Variant('(ssa{sv}a{sv})', ['com.example.Saved', object, userInfo, options]),
        new GLib.VariantType('(u)'), Gio.DBusCallFlags.NONE, -1, null);
    print(`reached ${reply.deepUnpack()[0]}`);
} catch (error) {
    const remote = Gio.DBusError.get_remote_error(error);
    Gio.DBusError.strip_remote_error(error);
    printerr(`post: ${remote ? `${remote}: ` : ''}${error.message}`);
    System.exit(1);
}
