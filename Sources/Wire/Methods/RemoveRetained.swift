// SPDX-License-Identifier: Apache-2.0
import CarillonDBus

/// The D-Bus method that removes the retained values of a name and an object, and replies with their number (R1).
public struct RemoveRetained: RemovingMethod {
    /// The name; empty for any name.
    public var name: String
    /// The object; empty for any object.
    public var object: String

    public init(name: String, object: String = "") {
        self.name = name
        self.object = object
    }

    public static let member: MemberName = "RemoveRetained"
}
