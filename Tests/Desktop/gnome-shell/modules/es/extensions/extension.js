// What the extension uses of GNOME 45's module for extensions.
export class Extension {}
