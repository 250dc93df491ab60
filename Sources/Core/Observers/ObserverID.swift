// SPDX-License-Identifier: Apache-2.0
/// The number of a registration. Numbers ascend in the order of registration, and are not reused, even by a later
/// process of the service.
public struct ObserverID: RawRepresentable, Hashable, Comparable, Sendable {
    public let rawValue: UInt64

    public init(rawValue: UInt64) {
        self.rawValue = rawValue
    }

    public static func < (left: ObserverID, right: ObserverID) -> Bool {
        left.rawValue < right.rawValue
    }
}
