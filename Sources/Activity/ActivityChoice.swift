// SPDX-License-Identifier: Apache-2.0
/// Which source of activity the configuration asks for, by its name there.
package enum ActivityChoice: RawRepresentable, CaseIterable, Equatable, Sendable {
    /// What the session offers.
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
