// SPDX-License-Identifier: Apache-2.0
// What the extension uses of GNOME 45's module for extensions.
export class Extension {}
