// SPDX-License-Identifier: Apache-2.0
/* exported sessionMode */
// What the extension uses of GNOME 43's imports.ui.main.
var sessionMode = globalThis.playedSessionMode;
