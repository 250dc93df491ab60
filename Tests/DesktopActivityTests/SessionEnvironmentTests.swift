// SPDX-License-Identifier: Apache-2.0
import CarillonTestLimits
import Testing

@testable import CarillonActivity

/// What a session offers.
@Suite("A3: activity sources offered by a session", .limited)
struct SessionEnvironmentTests {
    @Test(
        "The activity sources of a session are ordered by preference",
        arguments: [
            ("", []),
            ("DISPLAY=:0", [.x11]),
            ("DISPLAY=", []),
            ("DISPLAY=localhost:10.0", []),
            ("DISPLAY=elsewhere.example:0", []),
            ("DISPLAY=unix:0", [.x11]),
            ("DISPLAY=:0 I3SOCK=/run/i3", [.x11]),
            ("DISPLAY=:0 XDG_SESSION_TYPE=x11 XDG_CURRENT_DESKTOP=KDE", [.x11]),
            ("SWAYSOCK=/run/sway", [.sway]),
            ("SWAYSOCK=/run/sway DISPLAY=:0", [.sway]),
            ("WAYLAND_DISPLAY=wayland-1 SWAYSOCK=/run/sway XDG_CURRENT_DESKTOP=sway", [.sway, .foreignToplevel]),
            ("WAYLAND_DISPLAY=wayland-0 DISPLAY=:0 XDG_CURRENT_DESKTOP=KDE", [.kwin, .foreignToplevel]),
            ("WAYLAND_DISPLAY=wayland-0 XDG_CURRENT_DESKTOP=ubuntu:GNOME", [.gnome, .foreignToplevel]),
            ("XDG_SESSION_TYPE=wayland XDG_CURRENT_DESKTOP=GNOME-Classic:GNOME", [.gnome]),
            ("XDG_SESSION_TYPE=wayland", []),
        ] as [(String, [ActivitySourceKind])])
    func offered(text: String, kinds: [ActivitySourceKind]) {
        let environ = Array(text.split(separator: " ").joined(separator: "\0").utf8)
        #expect(ActivitySourceKind.offered(by: SessionEnvironment(environ: environ)) == kinds)
    }

    @Test(
        "On Wayland the X server is not offered as a source",
        arguments: ["WAYLAND_DISPLAY=wayland-0", "XDG_SESSION_TYPE=wayland"])
    func wayland(text: String) {
        let session = SessionEnvironment(environ: Array("DISPLAY=:0\0\(text)\0SWAYSOCK=/run/s\0".utf8))
        #expect(!ActivitySourceKind.offered(by: session).contains(.x11))
        #expect(ActivitySourceKind.offered(by: session).first == .sway)
    }

    @Test("An environment with malformed entries or invalid UTF-8 is read as far as possible")
    func rubbish() {
        let session = SessionEnvironment(
            environ: Array("=\0DISPLAY\0".utf8) + [0xFF, 0x3D, 0] + Array("DISPLAY=:1".utf8))
        #expect(session == SessionEnvironment([.display: ":1"]))
    }

    @Test("The configuration accepts exactly the names of the activity sources, auto and none")
    func choices() {
        let names = ActivityChoice.allCases.map(\.rawValue)
        #expect(names == ["auto", "none", "x11", "sway", "kwin", "gnome", "wlr-foreign-toplevel"])
        #expect(names.map(ActivityChoice.init(rawValue:)) == ActivityChoice.allCases)
        for name in ["", "automatic", "X11"] { #expect(ActivityChoice(rawValue: name) == nil) }
    }
}
