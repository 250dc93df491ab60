// SPDX-License-Identifier: Apache-2.0
/// A process that can't be mistaken for a later one with the same id.
package struct ProcessIdentity: Hashable, Sendable {
    let id: UInt32
    /// When it started, in clock ticks since the machine did.
    let start: UInt64
}

/// What tells a process's application from others.
package struct ProcessFacts: Equatable, Sendable {
    let identity: ProcessIdentity
    /// The process that it comes from, and so on up, as they were when this was read.
    var ancestors: [ProcessIdentity] = []
    /// The session of the terminal or login, as `setsid` makes one: what runs in a terminal has another than the
    /// terminal itself.
    var session: UInt32 = 0
    /// The systemd unit that an application was started as; nil for other units, which hold more than one application.
    var unit: String?
    /// Whether it is of the session or its background, not an application: the compositor, panels, services.
    var isEssential = false
    var sandbox: Sandbox?

    /// An application's own container, with all of its processes.
    struct Sandbox: Hashable, Sendable {
        let application: String
        /// One run of it; empty when that is not known.
        let instance: String
    }
}

/// Whether a process runs in the sandbox of an application.
package enum Confinement: Equatable, Sendable {
    /// It is a process of the session itself.
    case none
    /// Flatpak or snap confines it; the id of the application.
    case sandbox(String)
    /// Nothing tells: it is gone, or nobody may look.
    case unknown
}

/// What tells people whose process it is.
package struct ProcessDescription: Equatable, Sendable {
    /// The short name of its program, which that can change.
    package var name: String
    /// The systemd unit that it runs in; nil where it is in none.
    package var unit: String?
    /// The id of the application in the name of that; nil where it is no application's.
    package var application: String?

    package init(name: String, unit: String? = nil, application: String? = nil) {
        self.name = name
        self.unit = unit
        self.application = application
    }
}

/// Where facts about processes come from: the kernel, or a test. Nothing here waits for anything but the kernel; what may
/// take longer is a ``Lookup``.
package protocol ProcessTable {
    /// The short name of its program; empty when the process is gone or hidden.
    func name(of processID: UInt32) -> String
    /// Whether it runs in a sandbox, by Flatpak or snap.
    func confinement(of processID: UInt32) -> Lookup<Confinement>
    /// Whose process it is.
    ///
    /// - Parameter moment: as ``now`` tells it: one that started later has got the id of another.
    /// - Returns: nil when there is no such process, or it is another one.
    func description(of processID: UInt32, startedBy moment: UInt64) -> ProcessDescription?
    /// Nil when there is no such process.
    func identity(of processID: UInt32) -> ProcessIdentity?
    /// Nil when there is no such process.
    func facts(of processID: UInt32) -> Lookup<ProcessFacts?>
    /// What desktop the process sees. Nil when that is not known, or not to be believed, as in a sandbox.
    func environment(of processID: UInt32) -> Lookup<SessionEnvironment?>
    /// The present, as processes' starts are counted.
    var now: UInt64 { get }
}

extension Confinement {
    /// The application whose sandbox it is; nil where there is none, or nothing tells.
    package var sandbox: String? { if case .sandbox(let application) = self { application } else { nil } }
}

extension ProcessTable {
    package func identity(of processID: UInt32) -> ProcessIdentity? { facts(of: processID).value?.identity }

    /// Out of the facts, for a table that reads nothing anew.
    package func description(of processID: UInt32, startedBy moment: UInt64) -> ProcessDescription? {
        guard let facts = facts(of: processID).value, facts.identity.start <= moment else { return nil }
        return ProcessDescription(
            name: name(of: processID), unit: facts.unit, application: facts.unitApplication)
    }
}

extension ProcessFacts {
    /// Whether a process with these facts belongs to the application that `window`'s process is of.
    ///
    /// It does when it is the same process, when both are in the same sandbox, or when it is a helper: started by that
    /// process, in the same application's unit and in the same session. A process in a terminal is none of these.
    func belongs(to window: ProcessFacts) -> Bool {
        if identity == window.identity { return true }
        if let sandbox, sandbox == window.sandbox { return !sandbox.instance.isEmpty }
        guard sandbox == nil, window.sandbox == nil, let unit else { return false }
        return unit == window.unit && session == window.session && ancestors.contains(window.identity)
    }

    /// The id in the name of an application's unit, by systemd's convention for desktops; nil where it is none.
    ///
    /// `app[-LAUNCHER]-ID-RANDOM.scope` and `app[-LAUNCHER]-ID[@RANDOM].service`, where a dash in ID is `\x2d`.
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

    /// `\x2d` for a dash, and so on.
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
