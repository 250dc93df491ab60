// SPDX-License-Identifier: Apache-2.0
#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#endif

/// The environment variables that describe the desktop of a session. ``ActivityFollower`` selects and connects the
/// activity source by them.
///
/// The bus may start the service before the desktop has exported its environment. If no desktop is known, the service
/// therefore reads the environment of its clients: a client with a window has all of these variables.
package struct SessionEnvironment: Equatable, Sendable {
    enum Variable: String, CaseIterable, Sendable {
        case display = "DISPLAY"
        case authority = "XAUTHORITY"
        case waylandDisplay = "WAYLAND_DISPLAY"
        case swaySocket = "SWAYSOCK"
        case sessionType = "XDG_SESSION_TYPE"
        case currentDesktop = "XDG_CURRENT_DESKTOP"
        case runtimeDirectory = "XDG_RUNTIME_DIR"
    }

    private var values: [Variable: String] = [:]

    init(_ values: [Variable: String] = [:]) {
        self.values = values.filter { !$0.value.isEmpty }
    }

    /// The environment of a process without a desktop.
    package static var none: SessionEnvironment { SessionEnvironment() }

    /// The environment of this process.
    package static var own: SessionEnvironment {
        var values: [Variable: String] = [:]
        for variable in Variable.allCases {
            if let value = getenv(variable.rawValue) { values[variable] = String(cString: value) }
        }
        return SessionEnvironment(values)
    }

    /// Parses the environment of another process, the contents of its `/proc/PID/environ`.
    init(environ bytes: [UInt8]) {
        var values: [Variable: String] = [:]
        for entry in bytes.split(separator: 0) {
            guard let separator = entry.firstIndex(of: UInt8(ascii: "=")),
                let variable = Variable(rawValue: String(decoding: entry[..<separator], as: UTF8.self)),
                let value = String(validating: entry[(separator + 1)...], as: UTF8.self)
            else { continue }
            values[variable] = value
        }
        self.init(values)
    }

    /// The value of a variable; nil if it is unset or empty.
    subscript(variable: Variable) -> String? { values[variable] }

    /// Whether the session is a Wayland session.
    var isWayland: Bool { values[.waylandDisplay] != nil || values[.sessionType] == "wayland" }

    /// Whether the X server is on this machine. The process ids of a remote server would belong to another machine.
    var hasLocalDisplay: Bool {
        guard let display = values[.display] else { return false }
        return [":", "unix:", "/"].contains(where: display.hasPrefix)
    }

    /// The names in `XDG_CURRENT_DESKTOP`.
    var desktops: [String] {
        (values[.currentDesktop] ?? "").split(separator: ":").map(String.init)
    }
}
