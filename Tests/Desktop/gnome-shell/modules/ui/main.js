/* exported sessionMode */
// What the extension uses of GNOME 43's imports.ui.main.
var sessionMode = globalThis.playedSessionMode;
