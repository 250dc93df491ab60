// SPDX-License-Identifier: Apache-2.0
/// The identity of a process, distinct from later processes with the same id.
package struct ProcessIdentity: Hashable, Sendable {
    let id: UInt32
    /// The start time, in clock ticks since the boot of the machine.
    let start: UInt64
}

/// The facts about a process from which ``ActivityTracker`` determines the application that the process belongs to.
package struct ProcessFacts: Equatable, Sendable {
    let identity: ProcessIdentity
    /// The ancestors of the process, the parent first, at the time of the read.
    var ancestors: [ProcessIdentity] = []
    /// The session of the terminal or login, as created by `setsid`. A program in a terminal has another session than
    /// the terminal itself.
    var session: UInt32 = 0
    /// The systemd unit that was started for this application alone; nil if the process is in another kind of unit,
    /// such as that of a terminal session.
    var unit: String?
    /// Whether the process is part of the session or its background, not an application: the compositor, panels,
    /// services.
    var isPartOfSession = false
    /// The Flatpak sandbox; nil if the process is in none.
    var sandbox: Sandbox?

    /// A Flatpak sandbox, which holds all processes of one run of an application.
    struct Sandbox: Hashable, Sendable {
        /// The application's id.
        let application: String
        /// The id of one run; empty if unknown.
        let instance: String
    }
}

/// The sandbox of a process, for the access checks of the service.
package enum Confinement: Equatable, Sendable {
    /// A process outside any sandbox.
    case none
    /// A process confined by Flatpak or snap, with the application's id.
    case sandbox(String)
    /// Unknown: the process is gone, or access is denied.
    case unknown
}

/// A description of a process for the user, shown by `carillon` and in the log.
package struct ProcessDescription: Equatable, Sendable {
    /// The short name of the program, which the program can change.
    package var name: String
    /// The systemd unit of the process; nil without one.
    package var unit: String?
    /// The application id in the unit's name; nil if the unit is not that of an application.
    package var application: String?

    package init(name: String, unit: String? = nil, application: String? = nil) {
        self.name = name
        self.unit = unit
        self.application = application
    }
}

/// A provider of facts about processes: the kernel (``ProcFileSystem``), or its replacement in tests. Its functions
/// never block; a query that may block is returned as a ``Lookup``.
package protocol ProcessTable {
    /// Returns the short name of the program; empty if the process is gone or hidden.
    func name(of processID: UInt32) -> String
    /// Returns whether the process runs in a sandbox of Flatpak or snap.
    func confinement(of processID: UInt32) -> Lookup<Confinement>
    /// Returns the description of a process.
    ///
    /// - Parameter moment: A time of ``now``. A later start time means that another process reuses the id.
    /// - Returns: nil if there is no such process, or if it started later.
    func description(of processID: UInt32, startedBy moment: UInt64) -> ProcessDescription?
    /// Returns the identity of a process; nil if there is none.
    func identity(of processID: UInt32) -> ProcessIdentity?
    /// Returns the facts of a process; nil if there is none.
    func facts(of processID: UInt32) -> Lookup<ProcessFacts?>
    /// Returns the desktop environment of a process; nil if unknown, or not trustworthy, as in a sandbox.
    func environment(of processID: UInt32) -> Lookup<SessionEnvironment?>
    /// The current time on the clock of ``ProcessIdentity/start``, in clock ticks since boot.
    var now: UInt64 { get }
}

extension Confinement {
    /// The application of the sandbox; nil without one, or if unknown.
    package var sandbox: String? { if case .sandbox(let application) = self { application } else { nil } }
}

extension ProcessTable {
    package func identity(of processID: UInt32) -> ProcessIdentity? { facts(of: processID).value?.identity }

    /// The default implementation, for tests: derives the description from the facts.
    package func description(of processID: UInt32, startedBy moment: UInt64) -> ProcessDescription? {
        guard let facts = facts(of: processID).value, facts.identity.start <= moment else { return nil }
        return ProcessDescription(
            name: name(of: processID), unit: facts.unit, application: facts.unitApplication)
    }
}

extension ProcessFacts {
    /// Whether this process belongs to the application that owns a window.
    ///
    /// This is so in three cases: it is the process of the window, both are in the same sandbox instance, or this
    /// process is a *helper*. A helper is a descendant of the window's process in the same application unit and the
    /// same session (`setsid`). A program in a terminal has another session, so it is no helper of the terminal.
    ///
    /// - Parameter window: The facts of the process that owns the window.
    func belongs(to window: ProcessFacts) -> Bool {
        if identity == window.identity { return true }
        if let sandbox, sandbox == window.sandbox { return !sandbox.instance.isEmpty }
        guard sandbox == nil, window.sandbox == nil, let unit else { return false }
        return unit == window.unit && session == window.session && ancestors.contains(window.identity)
    }

    /// The application id in the name of ``unit``, by systemd's convention for desktops; nil without such an id.
    ///
    /// The forms are `app[-LAUNCHER]-ID-RANDOM.scope` and `app[-LAUNCHER]-ID[@RANDOM].service`, where a dash in ID is
    /// `\x2d`.
    var unitApplication: String? {
        guard let unit, unit.hasPrefix("app-") || unit.hasPrefix("snap.") else { return nil }
        if unit.hasPrefix("snap.") { return unit.split(separator: ".").dropFirst().first.map(String.init) }
        var parts: [Substring]
        if unit.hasSuffix(".scope") {
            parts = unit.dropLast(".scope".count).split(separator: "-")
            parts.removeLast()
        } else {
            let name = unit.prefix { $0 != "@" }
            parts = (name.hasSuffix(".service") ? name.dropLast(".service".count) : name).split(separator: "-")
        }
        guard parts.count > 1, let id = parts.last else { return nil }
        return unescaped(id)
    }

    /// Replaces escapes such as `\x2d`, which stands for a dash.
    private func unescaped(_ text: Substring) -> String {
        var bytes: [UInt8] = []
        var rest = Array(text.utf8)[...]
        while let byte = rest.popFirst() {
            if byte == UInt8(ascii: "\\"), rest.count >= 3, rest.first == UInt8(ascii: "x"),
                let code = UInt8(String(decoding: rest.dropFirst().prefix(2), as: UTF8.self), radix: 16)
            {
                bytes.append(code)
                rest = rest.dropFirst(3)
            } else {
                bytes.append(byte)
            }
        }
        return String(decoding: bytes, as: UTF8.self)
    }
}
