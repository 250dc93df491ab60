// SPDX-License-Identifier: Apache-2.0
#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#endif

/// What a program of the session finds in its environment about the desktop.
///
/// A service that the bus started may have been started before the desktop told the bus anything. So what the service
/// does not know it learns from its clients: those with a window have it all in their environments.
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

    /// That of a process without a desktop.
    package static var none: SessionEnvironment { SessionEnvironment() }

    /// That of this process.
    package static var own: SessionEnvironment {
        var values: [Variable: String] = [:]
        for variable in Variable.allCases {
            if let value = getenv(variable.rawValue) { values[variable] = String(cString: value) }
        }
        return SessionEnvironment(values)
    }

    /// That of another process: the contents of its `/proc/PID/environ`.
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

    /// Nil when it is not set, or empty.
    subscript(variable: Variable) -> String? { values[variable] }

    var isWayland: Bool { values[.waylandDisplay] != nil || values[.sessionType] == "wayland" }

    /// Whether there is an X server on this machine. One on another machine would tell processes of that machine.
    var hasLocalDisplay: Bool {
        guard let display = values[.display] else { return false }
        return [":", "unix:", "/"].contains(where: display.hasPrefix)
    }

    /// The names in `XDG_CURRENT_DESKTOP`.
    var desktops: [String] {
        (values[.currentDesktop] ?? "").split(separator: ":").map(String.init)
    }
}
