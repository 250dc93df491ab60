// SPDX-License-Identifier: Apache-2.0
// What the extension uses of GNOME 45's main module.
export const sessionMode = globalThis.playedSessionMode;
