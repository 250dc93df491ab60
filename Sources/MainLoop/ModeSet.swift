// SPDX-License-Identifier: Apache-2.0
/// An interned set of modes: equal sets are the same object, so that a comparison compares two pointers. Delivery
/// queues store one for each entry.
///
/// Threads: any.
@usableFromInline package final class ModeSet: Sendable {
    package let modes: Set<RunLoopMode>

    /// The default mode.
    package static let ofDefault = ModeSet(keeping: [.default])
    /// The common modes.
    package static let ofCommon = ModeSet(keeping: [.common])

    private struct Reference {
        weak var set: ModeSet?
    }

    /// The sets in use, other than the two permanent ones.
    private static let others = Locked<[Set<RunLoopMode>: Reference]>([:])
    /// Whether this is one of the two permanent sets, which are not in `others`.
    private let isKept: Bool

    private init(keeping modes: Set<RunLoopMode>) {
        self.modes = modes
        isKept = true
    }

    private init(_ modes: Set<RunLoopMode>) {
        self.modes = modes
        isKept = false
    }

    /// Returns the object for these modes, which is released with its last reference.
    package static func of(_ modes: Set<RunLoopMode>) -> ModeSet {
        if modes == ofCommon.modes { return ofCommon }
        if modes == ofDefault.modes { return ofDefault }
        return others.withLock { others in
            if let set = others[modes]?.set { return set }
            let set = ModeSet(modes)
            others[modes] = Reference(set: set)
            return set
        }
    }

    deinit {
        guard !isKept else { return }
        Self.others.withLock { others in
            // Another object for the same modes may have been created since this one's release began; it stays.
            if others[modes]?.set == nil { others[modes] = nil }
        }
    }

    /// The number of sets that are held, without the two permanent ones; for tests.
    package static var heldCount: Int {
        others.withLock { $0.count }
    }
}

extension ModeSet: Hashable {
    @usableFromInline package static func == (left: ModeSet, right: ModeSet) -> Bool {
        left === right
    }

    @usableFromInline package func hash(into hasher: inout Hasher) {
        hasher.combine(ObjectIdentifier(self))
    }
}
