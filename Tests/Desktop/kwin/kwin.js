// SPDX-FileCopyrightText: The Carillon authors
// SPDX-License-Identifier: Apache-2.0
//
// Plays KWin for our script: what scripts see of KWin 5 or 6, windows that a test makes, and KWin's name on the bus, with
// the object that loads scripts. Numbers and texts go over the bus as KWin sends them.
//
//   gjs -m kwin.js 5|6
//
// Lines on the standard input say what happens: "window ID PID KIND [OWNER]", where KIND is the property of a KWin
// window that is true, or "normal"; "focus ID", "focus", "close ID", "minimize ID", "restore ID", "move ID DESKTOP",
// "workspace DESKTOP", "unload". Each is answered by "done" when it has
// happened.

import Gio from 'gi://Gio';
import GLib from 'gi://GLib';

const [version] = ARGV;
const windows = new Map();
const scripts = new Map();
let active = null;

class Signal {
    constructor() {
        this._handlers = [];
    }

    connect(handler) {
        this._handlers.push(handler);
    }

    emit(value) {
        for (const handler of this._handlers)
            handler(value);
    }
}

// KWin 6 has objects where KWin 5 has numbers. That an object is another one each time is not said, and not relied on.
let currentDesktop = '0';
const desktop = id => version === '5' ? Number(id) : {id: `desktop ${id}`};

// What a script sees; it is gone with the script.
function makeWorkspace() {
    const list = () => [...windows.values()];
    return version === '5' ? {
        clientActivated: new Signal(), clientAdded: new Signal(), clientRemoved: new Signal(), clientList: list,
        currentDesktopChanged: new Signal(),
        get currentDesktop() {
            return desktop(currentDesktop);
        },
        get activeClient() {
            return active;
        },
    } : {
        windowActivated: new Signal(), windowAdded: new Signal(), windowRemoved: new Signal(), windowList: list,
        currentDesktopChanged: new Signal(),
        get currentDesktop() {
            return desktop(currentDesktop);
        },
        get activeWindow() {
            return active;
        },
    };
}

function emit(name, window) {
    for (const {workspace} of scripts.values())
        workspace[`${version === '5' ? 'client' : 'window'}${name}`]?.emit(window);
}

function callDBus(service, path, interfaceName, member, ...values) {
    const signature = values.map(value => ({number: 'i', boolean: 'b'})[typeof value] ?? 's').join('');
    Gio.DBus.session.call(
        service, path, interfaceName, member, new GLib.Variant(`(${signature})`, values), null,
        Gio.DBusCallFlags.NO_AUTO_START, -1, null, (connection, result) => {
            try {
                connection.call_finish(result);
            } catch (error) {
                print(`refused: ${error}`);
            }
        });
}

const scripting = {
    loadScript(path, name) {
        if (scripts.has(name))
            return -1;
        const [, text] = GLib.file_get_contents(path);
        scripts.set(name, {text: new TextDecoder().decode(text), workspace: makeWorkspace()});
        return scripts.size - 1;
    },
    unloadScript: name => scripts.delete(name),
    isScriptLoaded: name => scripts.has(name),
    start() {
        for (const script of scripts.values()) {
            if (script.isRunning)
                continue;
            script.isRunning = true;
            new Function('workspace', 'callDBus', script.text)(script.workspace, callDBus);
        }
    },
};

const INTERFACE = `<node><interface name="org.kde.kwin.Scripting">
    <method name="loadScript">
        <arg type="s" direction="in"/><arg type="s" direction="in"/><arg type="i" direction="out"/>
    </method>
    <method name="unloadScript"><arg type="s" direction="in"/><arg type="b" direction="out"/></method>
    <method name="isScriptLoaded"><arg type="s" direction="in"/><arg type="b" direction="out"/></method>
    <method name="start"/>
</interface></node>`;

function move(window, id) {
    if (version === '5')
        window.desktop = desktop(id);
    else
        window.desktops = [desktop(id)];
}

function happen([what, id, ...rest]) {
    switch (what) {
    case 'window': {
        const [pid, kind, owner] = rest;
        const window = {
            internalId: `{${id}}`, pid: Number(pid), desktopFileName: '', [kind]: true,
            transientFor: windows.get(owner) ?? null, minimized: false, onAllDesktops: false,
            minimizedChanged: new Signal(), [version === '5' ? 'desktopChanged' : 'desktopsChanged']: new Signal(),
        };
        move(window, currentDesktop);
        windows.set(id, window);
        emit('Added', window);
        break;
    }
    case 'focus':
        active = id ? windows.get(id) : null;
        emit('Activated', active);
        break;
    case 'close': {
        const window = windows.get(id);
        windows.delete(id);
        emit('Removed', window);
        break;
    }
    case 'minimize':
    case 'restore':
        windows.get(id).minimized = what === 'minimize';
        windows.get(id).minimizedChanged.emit();
        break;
    case 'move':
        move(windows.get(id), rest[0]);
        (windows.get(id).desktopChanged ?? windows.get(id).desktopsChanged).emit();
        break;
    case 'workspace':
        currentDesktop = id;
        for (const {workspace} of scripts.values())
            workspace.currentDesktopChanged.emit();
        break;
    case 'unload':
        scripts.clear();
        break;
    default:
        throw new Error(`no such thing happens: ${what}`);
    }
}

const loop = new GLib.MainLoop(null, false);
const input = new Gio.DataInputStream({base_stream: new Gio.UnixInputStream({fd: 0})});

function readNext() {
    input.read_line_async(GLib.PRIORITY_DEFAULT, null, (stream, result) => {
        const [line] = stream.read_line_finish_utf8(result);
        if (line === null) {
            loop.quit();
            return;
        }
        try {
            happen(line.split(' '));
            print('done');
        } catch (error) {
            print(`failed: ${error}`);
        }
        readNext();
    });
}

Gio.DBusExportedObject.wrapJSObject(INTERFACE, scripting).export(Gio.DBus.session, '/Scripting');
Gio.bus_own_name(Gio.BusType.SESSION, 'org.kde.KWin', Gio.BusNameOwnerFlags.NONE, null, () => {
    print('ready');
    readNext();
}, null);
loop.run();
