// SPDX-License-Identifier: Apache-2.0
import CarillonDBus

/// The D-Bus method that removes the caller's observers of a name and an object, and replies with their number (D8).
public struct RemoveObservers: RemovingMethod {
    /// The name of the registrations, compared byte for byte. An empty name selects all registrations, also those for
    /// all names. A caller cannot select only its registrations for all names.
    public var name: String
    /// The object of the registrations, by the same rules.
    public var object: String

    public init(name: String, object: String) {
        self.name = name
        self.object = object
    }

    public static let member: MemberName = "RemoveObservers"
}
