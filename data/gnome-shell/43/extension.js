// SPDX-FileCopyrightText: The Carillon authors
// SPDX-License-Identifier: Apache-2.0
//
// Reports to carillond which window has the focus. The service is never started for it: while it does not run, nothing
// is sent. For GNOME 43 and 44.
/* exported init */

const {Gio, GLib} = imports.gi;
const Main = imports.ui.main;

// From here on the same for all versions; a test holds the two files against each other.

const NAME = 'org.carillon.NotificationCenter1';
const PATH = '/org/carillon/Activity';
const INTERFACE = 'org.carillon.Activity1';

// Of Meta.WindowType. What is in neither list is an application's window.
const SHELL_TYPES = [1, 2]; // DESKTOP, DOCK
const PASSING_TYPES = [6, 8, 9, 10, 11, 12, 13, 14, 15]; // menus, SPLASHSCREEN, TOOLTIP, NOTIFICATION, COMBO, DND, others

class Reporter {
    // The session mode of the shell, which tells whether the screen is locked.
    constructor(sessionMode) {
        this._sessionMode = sessionMode;
        this._service = null;
        this._closing = new Map();
        // What was told of whether windows can be seen; null while nobody wants to know.
        this._hidden = null;
        this._watched = new Map();
        this._watch = Gio.bus_watch_name(
            Gio.BusType.SESSION, NAME, Gio.BusNameWatcherFlags.NONE,
            (_connection, _name, owner) => {
                this._service = owner;
                this._reportAll();
            },
            () => {
                this._service = null;
                this._forgetVisibility();
            });
        // Sent to this connection alone, when the service starts to follow later than it appeared, and when it wants to
        // know whether anybody is there.
        this._request = Gio.DBus.session.signal_subscribe(
            NAME, INTERFACE, 'ReportRequested', PATH, null, Gio.DBusSignalFlags.NONE, () => this._reportAll());
        this._focus = global.display.connect('notify::focus-window', () => this._report());
        this._visibilityRequest = Gio.DBus.session.signal_subscribe(
            NAME, INTERFACE, 'VisibilityRequested', PATH, null, Gio.DBusSignalFlags.NONE, () => this._watchVisibility());
        this._created = global.display.connect('window-created', (_display, window) => {
            this._reportShell(window);
            if (this._hidden)
                this._watchWindow(window);
            this._reportVisibility();
        });
        this._mode = sessionMode.connect('updated', () => {
            this._reportVisibility();
            this._report();
        });
    }

    destroy() {
        // So that nobody stays suspended who was not active just now.
        this._call('Ended', null);
        this._sessionMode.disconnect(this._mode);
        global.display.disconnect(this._created);
        global.display.disconnect(this._focus);
        this._forgetVisibility();
        Gio.DBus.session.signal_unsubscribe(this._visibilityRequest);
        Gio.DBus.session.signal_unsubscribe(this._request);
        Gio.bus_unwatch_name(this._watch);
        for (const [window, handler] of this._closing)
            window.disconnect(handler);
        this._closing.clear();
        this._service = null;
    }

    _reportAll() {
        for (const actor of global.get_window_actors())
            this._reportShell(actor.meta_window);
        this._hidden?.clear();
        this._reportVisibility();
        this._report();
    }

    _watchVisibility() {
        if (!this._hidden) {
            this._hidden = new Map();
            this._workspace = global.workspace_manager.connect(
                'active-workspace-changed', () => this._reportVisibility());
            for (const actor of global.get_window_actors())
                this._watchWindow(actor.meta_window);
        }
        this._hidden.clear();
        this._reportVisibility();
    }

    _watchWindow(window) {
        this._watched.set(window, ['notify::minimized', 'workspace-changed'].map(
            change => window.connect(change, () => this._reportVisibility())));
        this._watchClosing(window);
    }

    _forgetVisibility() {
        if (!this._hidden)
            return;
        global.workspace_manager.disconnect(this._workspace);
        for (const [window, handlers] of this._watched)
            handlers.forEach(handler => window.disconnect(handler));
        this._watched.clear();
        this._hidden = null;
    }

    // Which windows can be seen, of those for which it changed. Where nobody wants to know, none is watched.
    _reportVisibility() {
        for (const window of this._watched.keys()) {
            const hidden = this._sessionMode.isLocked || window.minimized ||
                !window.located_on_workspace(global.workspace_manager.get_active_workspace());
            if (SHELL_TYPES.includes(window.get_window_type()) || this._hidden.get(window) === hidden)
                continue;
            this._hidden.set(window, hidden);
            this._call('WindowVisibility', new GLib.Variant(
                '(sissb)', [...this._facts(window), this._kind(window), hidden]));
        }
    }

    // A part of the desktop itself, which a person sees whatever has the focus.
    _reportShell(window) {
        if (!SHELL_TYPES.includes(window.get_window_type()))
            return;
        this._watchClosing(window);
        this._call('ShellWindow', new GLib.Variant('(sis)', this._facts(window)));
    }

    _report() {
        // While the screen is locked nobody sees a window, whichever has the focus.
        const window = this._sessionMode.isLocked ? null : global.display.focus_window;
        if (!window) {
            this._call('WindowFocused', new GLib.Variant('(sissis)', ['', 0, '', '', 0, '']));
            return;
        }
        this._watchClosing(window);
        const owner = this._owner(window);
        const [, pid, application] = owner === window ? ['', 0, ''] : this._facts(owner);
        this._call('WindowFocused', new GLib.Variant(
            '(sissis)', [...this._facts(window), this._kind(window), pid, application]));
    }

    _watchClosing(window) {
        if (this._closing.has(window))
            return;
        this._closing.set(window, window.connect('unmanaged', () => {
            this._closing.delete(window);
            this._watched.delete(window);
            this._hidden?.delete(window);
            this._call('Closed', new GLib.Variant('(s)', [String(window.get_id())]));
        }));
    }

    _facts(window) {
        const application = window.get_sandboxed_app_id() || window.get_gtk_application_id() || '';
        return [String(window.get_id()), Math.max(0, window.get_pid()), application];
    }

    _kind(window) {
        const type = window.get_window_type();
        if (SHELL_TYPES.includes(type))
            return 'shell';
        return PASSING_TYPES.includes(type) ? 'passing' : 'application';
    }

    // The window that this one belongs to in the end; itself if to none.
    _owner(window) {
        let owner = window;
        for (let depth = 0; depth < 16 && owner.get_transient_for(); depth++)
            owner = owner.get_transient_for();
        return owner;
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

// To here.

class Extension {
    enable() {
        this._reporter = new Reporter(Main.sessionMode);
    }

    // It stays enabled while the screen is locked, to tell that nobody is active then.
    disable() {
        this._reporter.destroy();
        this._reporter = null;
    }
}

function init() {
    return new Extension();
}
