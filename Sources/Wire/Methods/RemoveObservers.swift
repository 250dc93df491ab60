// SPDX-License-Identifier: Apache-2.0
import CarillonDBus

/// The D-Bus method that removes the caller's observers of a name and an object, and replies with their number (D8).
public struct RemoveObservers: RemovingMethod {
    /// The registered name; empty for any name.
    public var name: String
    /// The registered object; empty for any object.
    public var object: String

    public init(name: String, object: String) {
        self.name = name
        self.object = object
    }

    public static let member: MemberName = "RemoveObservers"
}
