// SPDX-License-Identifier: Apache-2.0
/// A registration's number, unique in a center's life.
public struct ObserverID: RawRepresentable, Hashable, Comparable, Sendable {
    public let rawValue: UInt64

    public init(rawValue: UInt64) {
        self.rawValue = rawValue
    }

    public static func < (left: ObserverID, right: ObserverID) -> Bool {
        left.rawValue < right.rawValue
    }
}
