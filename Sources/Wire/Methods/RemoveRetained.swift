// SPDX-License-Identifier: Apache-2.0
import CarillonDBus

/// Removes the values that are kept of a name and an object (R1); answered with how many.
public struct RemoveRetained: RemovingMethod {
    /// Empty for whatever name.
    public var name: String
    /// Empty for whatever object.
    public var object: String

    public init(name: String, object: String = "") {
        self.name = name
        self.object = object
    }

    public static let member: MemberName = "RemoveRetained"
}
