// SPDX-License-Identifier: Apache-2.0
module example.com/carillon

go 1.19

require github.com/godbus/dbus/v5 v5.1.0

// The package of Debian and Ubuntu. Without this line Go fetches it.
replace github.com/godbus/dbus/v5 => /usr/share/gocode/src/github.com/godbus/dbus
