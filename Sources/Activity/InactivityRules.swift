// SPDX-License-Identifier: Apache-2.0
/// When an application is inactive (A1), by its name in the configuration.
package enum InactiveWhen: String, CaseIterable, Sendable {
    /// When none of its windows has the focus, as AppKit has it.
    case unfocused = "unfocused"
    /// When none of its windows can be seen: they are minimised or on another workspace, or the screen is locked.
    case hidden = "hidden"
}

/// What the configuration says of that, for all and for single applications.
package struct InactivityRules: Equatable, Sendable {
    package var general: InactiveWhen
    /// By the id of an application, or the name of a program.
    package var applications: [String: InactiveWhen]

    package init(general: InactiveWhen = .unfocused, applications: [String: InactiveWhen] = [:]) {
        self.general = general
        self.applications = applications
    }

    /// Whether anybody has to know which windows can be seen.
    var needVisibility: Bool { general == .hidden || applications.values.contains(.hidden) }

    /// What holds for an application.
    ///
    /// - Parameter names: what it is called; the first that the rules know counts. Asked for only where it matters.
    func rule(for names: @autoclosure () -> [String]) -> InactiveWhen {
        guard !applications.isEmpty else { return general }
        return names().lazy.compactMap { applications[$0] }.first ?? general
    }
}
