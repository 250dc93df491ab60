// SPDX-License-Identifier: Apache-2.0
/// The number of a registration, unique in the life of a center.
public struct ObserverID: RawRepresentable, Hashable, Comparable, Sendable {
    public let rawValue: UInt64

    public init(rawValue: UInt64) {
        self.rawValue = rawValue
    }

    public static func < (left: ObserverID, right: ObserverID) -> Bool {
        left.rawValue < right.rawValue
    }
}
