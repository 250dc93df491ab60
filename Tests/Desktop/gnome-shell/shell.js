// SPDX-FileCopyrightText: The Carillon authors
// SPDX-License-Identifier: Apache-2.0
//
// Plays GNOME Shell for our extension: what that uses of the shell's modules, windows that a test makes, and the shell's
// name on the bus.
//
//   gjs -m shell.js 43|45 DIRECTORY
//
// The extension is that of data/gnome-shell for this version; DIRECTORY is for what has to be compiled. Lines on the
// standard input say what happens: "window ID PID TYPE [OWNER]", "focus ID", "focus", "close ID", "minimize ID",
// "restore ID", "move ID WORKSPACE", "workspace NUMBER", "lock", "unlock", "enable" and "disable". Each is answered by "done" when it has happened.

import Gio from 'gi://Gio';
import GLib from 'gi://GLib';

const [version, directory] = ARGV;
const here = GLib.path_get_dirname(GLib.filename_from_uri(import.meta.url)[0]);
const extensionDirectory = GLib.build_filenamev([here, '../../../data/gnome-shell', version]);

class Emitter {
    constructor() {
        this._handlers = new Map();
        this._last = 0;
    }

    connect(signal, handler) {
        this._handlers.set(++this._last, [signal, handler]);
        return this._last;
    }

    disconnect(number) {
        if (!this._handlers.delete(number))
            throw new Error(`no handler ${number}`);
    }

    emit(signal, ...values) {
        for (const [name, handler] of [...this._handlers.values()]) {
            if (name === signal)
                handler(this, ...values);
        }
    }

    get handlerCount() {
        return this._handlers.size;
    }
}

const workspaceManager = new Emitter();
let activeWorkspace = '0';
workspaceManager.get_active_workspace = () => activeWorkspace;

class Window extends Emitter {
    constructor(id, pid, type, owner) {
        super();
        Object.assign(this, {_id: id, _pid: pid, _type: type, _owner: owner, _workspace: activeWorkspace});
        this.minimized = false;
    }

    located_on_workspace(workspace) {
        return this._workspace === workspace;
    }

    get_id() {
        return this._id;
    }

    get_pid() {
        return this._pid;
    }

    get_window_type() {
        return this._type;
    }

    get_transient_for() {
        return this._owner ?? null;
    }

    get_sandboxed_app_id() {
        return null;
    }

    get_gtk_application_id() {
        return null;
    }
}

const windows = new Map();
const display = new Emitter();
display.focus_window = null;
const sessionMode = new Emitter();
sessionMode.isLocked = false;
globalThis.global = {
    display,
    workspace_manager: workspaceManager,
    get_window_actors: () => [...windows.values()].map(window => ({meta_window: window})),
};
globalThis.playedSessionMode = sessionMode;

async function loadExtension() {
    if (version === '43') {
        imports.searchPath.unshift(GLib.build_filenamev([here, 'modules']), extensionDirectory);
        return imports.extension.init();
    }
    const bundle = GLib.build_filenamev([directory, 'shell.gresource']);
    const compiler = Gio.Subprocess.new(
        ['glib-compile-resources', `--sourcedir=${here}/modules`, `--target=${bundle}`,
            `${here}/modules/shell.gresource.xml`], Gio.SubprocessFlags.NONE);
    compiler.wait_check(null);
    Gio.Resource.load(bundle)._register();
    const {default: Extension} = await import(GLib.filename_to_uri(`${extensionDirectory}/extension.js`, null));
    return new Extension();
}

function happen(extension, [what, id, ...rest]) {
    switch (what) {
    case 'window': {
        const [pid, type, owner] = rest;
        const window = new Window(Number(id), Number(pid), Number(type), windows.get(owner));
        windows.set(id, window);
        display.emit('window-created', window);
        break;
    }
    case 'focus':
        display.focus_window = id ? windows.get(id) : null;
        display.emit('notify::focus-window');
        break;
    case 'close': {
        const window = windows.get(id);
        windows.delete(id);
        window.emit('unmanaged');
        break;
    }
    case 'minimize':
    case 'restore':
        windows.get(id).minimized = what === 'minimize';
        windows.get(id).emit('notify::minimized');
        break;
    case 'move':
        windows.get(id)._workspace = rest[0];
        windows.get(id).emit('workspace-changed');
        break;
    case 'workspace':
        activeWorkspace = id;
        workspaceManager.emit('active-workspace-changed');
        break;
    case 'lock':
    case 'unlock':
        sessionMode.isLocked = what === 'lock';
        sessionMode.emit('updated');
        break;
    case 'enable':
        extension.enable();
        break;
    case 'disable': {
        extension.disable();
        const left = [display, sessionMode, workspaceManager, ...windows.values()].map(each => each.handlerCount);
        if (left.some(count => count > 0))
            throw new Error(`it left handlers: ${left}`);
        break;
    }
    default:
        throw new Error(`no such thing happens: ${what}`);
    }
}

const loop = new GLib.MainLoop(null, false);
const input = new Gio.DataInputStream({base_stream: new Gio.UnixInputStream({fd: 0})});

function readNext(extension) {
    input.read_line_async(GLib.PRIORITY_DEFAULT, null, (stream, result) => {
        const [line] = stream.read_line_finish_utf8(result);
        if (line === null) {
            loop.quit();
            return;
        }
        try {
            happen(extension, line.split(' '));
            print('done');
        } catch (error) {
            print(`failed: ${error}`);
        }
        readNext(extension);
    });
}

try {
    const extension = await loadExtension();
    Gio.bus_own_name(Gio.BusType.SESSION, 'org.gnome.Shell', Gio.BusNameOwnerFlags.NONE, null, () => {
        extension.enable();
        print('ready');
        readNext(extension);
    }, null);
    await loop.runAsync?.() ?? loop.run();
} catch (error) {
    print(`failed: ${error}`);
    throw error;
}
