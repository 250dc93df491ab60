// SPDX-License-Identifier: Apache-2.0
import CarillonCollections
import CarillonCore

/// The names to subscribe to at the broker: the names that observers of the session want and that may be imported (G2).
///
/// An observer of any name adds the prefixes of the list of imports, and never all names: in a realm with many hosts
/// these would be all notifications of all hosts.
struct WantedNames: Equatable {
    private var names: Set<ExactText> = []
    private var prefixes: Set<ExactText> = []
    /// Whether the limit excludes some names.
    private(set) var isCut = false

    init() {}

    /// - Parameters:
    ///   - observed: the names that the session's observers want.
    ///   - isAnyObserved: whether one of them wants any name.
    ///   - most: the maximum number of subscriptions; each name takes two.
    init(
        observed: some Sequence<String>, isAnyObserved: Bool, imports: [NamePattern], maxSubscriptions most: Int
    ) {
        var room = most / 2
        func add(_ text: String, to set: inout Set<ExactText>) {
            let text = ExactText(text)
            guard !set.contains(text) else { return }
            guard room > 0 else { return isCut = true }
            room -= 1
            set.insert(text)
        }
        if isAnyObserved {
            for pattern in imports {
                switch pattern {
                case .all: break
                case .below(let prefix): if BridgeTopic.isPossible(name: prefix) { add(prefix, to: &prefixes) }
                case .exactly(let name): if Self.mayImport(name, imports) { add(name, to: &names) }
                }
            }
        }
        for name in observed where Self.mayImport(name, imports) && !isBelowPrefix(name) { add(name, to: &names) }
    }

    /// The names of the bridge's own notifications, which are never imported or exported.
    static let ownNames = NamePattern.below("org.carillon.Bridge.")

    static func mayImport(_ name: String, _ imports: [NamePattern]) -> Bool {
        !ownNames.matches(name) && BridgeTopic.isPossible(name: name) && imports.contains { $0.matches(name) }
    }

    private func isBelowPrefix(_ name: String) -> Bool {
        prefixes.contains { NamePattern.below($0.text).matches(name) }
    }

    func contains(_ name: String) -> Bool { names.contains(ExactText(name)) || isBelowPrefix(name) }

    /// Returns the filters of the subscriptions.
    ///
    /// - Parameter origin: the only host to subscribe to; nil for all.
    func filters(of origin: Origin? = nil, in realm: String) -> Set<String> {
        var filters: Set<String> = []
        for name in names { filters.formUnion(BridgeTopic.filters(name: name.text, of: origin, in: realm)) }
        for prefix in prefixes { filters.formUnion(BridgeTopic.filters(below: prefix.text, of: origin, in: realm)) }
        return filters
    }
}
