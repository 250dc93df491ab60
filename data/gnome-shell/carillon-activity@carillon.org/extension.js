// SPDX-FileCopyrightText: The Carillon authors
// SPDX-License-Identifier: Apache-2.0
//
// Reports to carillond which window has the focus. The service is never started for it: while it does not run, nothing
// is sent.
/* exported init */

const {Gio, GLib} = imports.gi;

const NAME = 'org.carillon.NotificationCenter1';
const PATH = '/org/carillon/Activity';
const INTERFACE = 'org.carillon.Activity1';

class Extension {
    enable() {
        this._service = null;
        this._closing = new Map();
        this._watch = Gio.bus_watch_name(
            Gio.BusType.SESSION, NAME, Gio.BusNameWatcherFlags.NONE,
            (_connection, _name, owner) => {
                this._service = owner;
                this._report();
            },
            () => {
                this._service = null;
            });
        // Sent to this connection alone, when the service starts to follow later than it appeared.
        this._request = Gio.DBus.session.signal_subscribe(
            NAME, INTERFACE, 'ReportRequested', PATH, null, Gio.DBusSignalFlags.NONE, () => this._report());
        this._focus = global.display.connect('notify::focus-window', () => this._report());
    }

    disable() {
        global.display.disconnect(this._focus);
        Gio.DBus.session.signal_unsubscribe(this._request);
        Gio.bus_unwatch_name(this._watch);
        for (const [window, handler] of this._closing)
            window.disconnect(handler);
        this._closing.clear();
        this._service = null;
    }

    _report() {
        const window = global.display.focus_window;
        if (!window) {
            this._call('Focused', new GLib.Variant('(sis)', ['', 0, '']));
            return;
        }
        if (!this._closing.has(window)) {
            this._closing.set(window, window.connect('unmanaged', () => {
                this._closing.delete(window);
                this._call('Closed', new GLib.Variant('(s)', [String(window.get_id())]));
            }));
        }
        const application = window.get_sandboxed_app_id() || window.get_gtk_application_id() || '';
        this._call('Focused', new GLib.Variant(
            '(sis)', [String(window.get_id()), Math.max(0, window.get_pid()), application]));
    }

    _call(member, parameters) {
        if (!this._service)
            return;
        Gio.DBus.session.call(
            this._service, PATH, INTERFACE, member, parameters, null, Gio.DBusCallFlags.NO_AUTO_START, -1, null,
            (connection, result) => {
                try {
                    connection.call_finish(result);
                } catch (_error) {
                    // The service follows something else, or is gone. It asks when it wants to know.
                }
            });
    }
}

function init() {
    return new Extension();
}
