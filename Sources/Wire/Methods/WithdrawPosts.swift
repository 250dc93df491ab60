// SPDX-License-Identifier: Apache-2.0
import CarillonDBus

/// Takes the caller's own posts of a name and an object out of its queue, whenever they were to be posted (Q3, R4);
/// answered with how many.
public struct WithdrawPosts: RemovingMethod {
    /// Empty for whatever name.
    public var name: String
    /// Empty for whatever object.
    public var object: String

    public init(name: String, object: String = "") {
        self.name = name
        self.object = object
    }

    public static let member: MemberName = "WithdrawPosts"
}
