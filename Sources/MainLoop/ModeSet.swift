// SPDX-License-Identifier: Apache-2.0
/// A set of modes, as an object that stands for it: what has equal modes has the same one, so that modes are compared
/// at the cost of a pointer.
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

    /// All other sets that somebody holds.
    private static let others = Locked<[Set<RunLoopMode>: Reference]>([:])
    private let isKept: Bool

    private init(keeping modes: Set<RunLoopMode>) {
        self.modes = modes
        isKept = true
    }

    private init(_ modes: Set<RunLoopMode>) {
        self.modes = modes
        isKept = false
    }

    /// The one for these modes, which goes when nobody holds it.
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
            // Another one may have come since this one began to end.
            if others[modes]?.set == nil { others[modes] = nil }
        }
    }

    /// How many sets are held, beside the two that are kept: for tests.
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
