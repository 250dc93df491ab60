// What the extension uses of GNOME 45's main module.
export const sessionMode = globalThis.playedSessionMode;
