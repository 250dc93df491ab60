// SPDX-License-Identifier: Apache-2.0
import CarillonCollections
import CarillonCore

/// The names to which the bridge subscribes at the broker: the names that the session's observers want and the
/// configuration imports (G2).
///
/// An observer of any name adds the names and prefixes of the configuration's list of imports, except `*`: in a realm
/// with many hosts all names would be all notifications of all hosts.
struct WantedNames: Equatable {
    /// Exact names.
    private var names: Set<ExactText> = []
    /// Prefixes of names, each with the dot at its end.
    private var prefixes: Set<ExactText> = []
    /// Whether the limit of subscriptions excludes some of these names.
    private(set) var isCut = false

    /// Creates an empty set.
    init() {}

    /// Creates the set for the present observers.
    ///
    /// - Parameters:
    ///   - observed: the names that the session's observers want.
    ///   - isAnyObserved: whether an observer wants any name.
    ///   - imports: the names that the configuration imports.
    ///   - most: the maximum number of subscriptions; each name takes two.
    init(
        observed: some Sequence<String>, isAnyObserved: Bool, imports: [NamePattern], maxSubscriptions most: Int
    ) {
        // A name takes two subscriptions: for its notifications, and for its values with an object.
        var space = most / 2
        func add(_ text: String, to set: inout Set<ExactText>) {
            let text = ExactText(text)
            guard !set.contains(text) else { return }
            guard space > 0 else { return isCut = true }
            space -= 1
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

    /// The names of the bridge's own notifications in the session, such as reports of losses and of other hosts. They
    /// concern this session only, and are never imported or exported: ``mayImport(_:_:)`` excludes them. A prefix may
    /// contain them, so ``InwardGate`` also tests each message.
    static let ownNames = NamePattern.below("org.carillon.Bridge.")

    /// Whether the configuration imports a name, and a topic can represent it.
    static func mayImport(_ name: String, _ imports: [NamePattern]) -> Bool {
        !ownNames.matches(name) && BridgeTopic.isPossible(name: name) && imports.contains { $0.matches(name) }
    }

    /// Whether a name begins with one of the prefixes.
    private func isBelowPrefix(_ name: String) -> Bool {
        prefixes.contains { NamePattern.below($0.text).matches(name) }
    }

    /// Whether messages of a name are wanted, as far as ``mayImport(_:_:)`` allows them.
    func contains(_ name: String) -> Bool { names.contains(ExactText(name)) || isBelowPrefix(name) }

    /// Returns the topic filters of the subscriptions.
    ///
    /// - Parameter origin: the only host to subscribe to; nil for all hosts.
    func filters(of origin: Origin? = nil, in realm: String) -> Set<String> {
        var filters: Set<String> = []
        for name in names { filters.formUnion(BridgeTopic.filters(name: name.text, of: origin, in: realm)) }
        for prefix in prefixes { filters.formUnion(BridgeTopic.filters(below: prefix.text, of: origin, in: realm)) }
        return filters
    }
}
