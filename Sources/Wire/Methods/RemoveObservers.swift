// SPDX-License-Identifier: Apache-2.0
import CarillonDBus

/// Removes the caller's observers that were registered for a name and an object (D8); answered with how many.
public struct RemoveObservers: RemovingMethod {
    /// Empty for whatever name.
    public var name: String
    /// Empty for whatever object.
    public var object: String

    public init(name: String, object: String) {
        self.name = name
        self.object = object
    }

    public static let member: MemberName = "RemoveObservers"
}
