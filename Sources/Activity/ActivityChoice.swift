// SPDX-License-Identifier: Apache-2.0
/// The configured source of activity: the desktop interface from which the service learns the active window. The raw
/// values are the names in the configuration.
package enum ActivityChoice: RawRepresentable, CaseIterable, Equatable, Sendable {
    /// The best source that the session offers.
    case automatic
    case none
    case kind(ActivitySourceKind)

    package static var allCases: [ActivityChoice] {
        [.automatic, .none] + ActivitySourceKind.allCases.map(ActivityChoice.kind)
    }

    package init?(rawValue: String) {
        switch rawValue {
        case "auto": self = .automatic
        case "none": self = .none
        default:
            guard let kind = ActivitySourceKind(rawValue: rawValue) else { return nil }
            self = .kind(kind)
        }
    }

    package var rawValue: String {
        switch self {
        case .automatic: "auto"
        case .none: "none"
        case .kind(let kind): kind.rawValue
        }
    }
}
