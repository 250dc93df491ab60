// SPDX-License-Identifier: Apache-2.0
import CarillonCollections
import CarillonCore

/// What the service is told of an observer. Observers of the program with the same key share one registration there: not
/// those that want the values that there are, each of which gets them when it comes.
public struct RegistrationKey: Hashable, Sendable {
    /// Nil means any.
    public let name: ExactText?
    /// Nil means any.
    public let object: ExactText?
    public let options: ObserverOptions
    /// Another one for each observer that shares with no other; 0 for those that may.
    public let number: UInt64

    public init(name: ExactText?, object: ExactText?, options: ObserverOptions, number: UInt64 = 0) {
        self.name = name
        self.object = object
        self.options = options
        self.number = number
    }
}
