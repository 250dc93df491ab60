// SPDX-License-Identifier: Apache-2.0
/// The condition under which an application is inactive (A1), by its name in the configuration.
package enum InactiveWhen: String, CaseIterable, Sendable {
    /// None of its windows has the focus, as in AppKit.
    case unfocused = "unfocused"
    /// None of its windows is visible: they are minimised or on another workspace, or the screen is locked.
    case hidden = "hidden"
}

/// The configured conditions, for all applications and for single ones.
package struct InactivityRules: Equatable, Sendable {
    package var general: InactiveWhen
    /// The conditions by the id of an application, or the name of a program.
    package var applications: [String: InactiveWhen]

    package init(general: InactiveWhen = .unfocused, applications: [String: InactiveWhen] = [:]) {
        self.general = general
        self.applications = applications
    }

    /// Whether a rule requires the visibility of windows.
    var needVisibility: Bool { general == .hidden || applications.values.contains(.hidden) }

    /// Returns the condition for an application.
    ///
    /// - Parameter names: The names of the application; the first with a rule counts. It is evaluated only if there are
    ///   such rules.
    func rule(for names: @autoclosure () -> [String]) -> InactiveWhen {
        guard !applications.isEmpty else { return general }
        return names().lazy.compactMap { applications[$0] }.first ?? general
    }
}
