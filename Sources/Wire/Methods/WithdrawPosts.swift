// SPDX-License-Identifier: Apache-2.0
import CarillonDBus

/// The D-Bus method that removes the caller's queued posts of a name and an object before they are made, of all posting
/// styles, and replies with their number (Q3, R4).
public struct WithdrawPosts: RemovingMethod {
    /// The name; empty for any name.
    public var name: String
    /// The object; empty for any object.
    public var object: String

    public init(name: String, object: String = "") {
        self.name = name
        self.object = object
    }

    public static let member: MemberName = "WithdrawPosts"
}
