// SPDX-License-Identifier: Apache-2.0
import CarillonCollections
import CarillonCore

/// What is subscribed to at the broker: of the names that observers of the session want, those that may be imported (G2).
///
/// An observer of any name widens that to the beginnings that the list has, and never to all names: of a realm with many
/// hosts that would be everything that happens on all of them.
struct WantedNames: Equatable {
    private var names: Set<ExactText> = []
    private var prefixes: Set<ExactText> = []
    /// Whether not all of them fit.
    private(set) var isCut = false

    init() {}

    /// - Parameters:
    ///   - observed: what the session's observers want.
    ///   - isAnyObserved: whether one of them wants any name.
    ///   - most: subscriptions at most; each name takes two.
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

    /// What the bridge itself says is never taken from outside, and never goes out.
    static let ownNames = NamePattern.below("org.carillon.Bridge.")

    static func mayImport(_ name: String, _ imports: [NamePattern]) -> Bool {
        !ownNames.matches(name) && BridgeTopic.isPossible(name: name) && imports.contains { $0.matches(name) }
    }

    private func isBelowPrefix(_ name: String) -> Bool {
        prefixes.contains { NamePattern.below($0.text).matches(name) }
    }

    func contains(_ name: String) -> Bool { names.contains(ExactText(name)) || isBelowPrefix(name) }

    /// The filters of the subscriptions.
    ///
    /// - Parameter origin: for what is of this host only; nil for all.
    func filters(of origin: Origin? = nil, in realm: String) -> Set<String> {
        var filters: Set<String> = []
        for name in names { filters.formUnion(BridgeTopic.filters(name: name.text, of: origin, in: realm)) }
        for prefix in prefixes { filters.formUnion(BridgeTopic.filters(below: prefix.text, of: origin, in: realm)) }
        return filters
    }
}
