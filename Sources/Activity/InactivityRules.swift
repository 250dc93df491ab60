// SPDX-License-Identifier: Apache-2.0
/// The condition under which an application counts as inactive, so that its notifications are suspended (A1). The raw
/// values are the names in the configuration.
package enum InactiveWhen: String, CaseIterable, Sendable {
    /// None of its windows has the focus, as in AppKit.
    case unfocused = "unfocused"
    /// None of its windows is visible: they are minimised or on another workspace, or the screen is locked.
    case hidden = "hidden"
}

/// The configured conditions of inactivity, a general one and exceptions for single applications. ``ActivityTracker``
/// applies them.
package struct InactivityRules: Equatable, Sendable {
    /// The condition for applications without an exception.
    package var general: InactiveWhen
    /// The exceptions, by the id of an application or the name of a program.
    package var applications: [String: InactiveWhen]

    package init(general: InactiveWhen = .unfocused, applications: [String: InactiveWhen] = [:]) {
        self.general = general
        self.applications = applications
    }

    /// Whether any condition depends on the visibility of windows, so that the source has to report it.
    var needVisibility: Bool { general == .hidden || applications.values.contains(.hidden) }

    /// Returns the condition for an application.
    ///
    /// - Parameter names: The ids and names of the application; the first one with an exception counts. The expression
    ///   is evaluated only if there are exceptions.
    func rule(for names: @autoclosure () -> [String]) -> InactiveWhen {
        guard !applications.isEmpty else { return general }
        return names().lazy.compactMap { applications[$0] }.first ?? general
    }
}
