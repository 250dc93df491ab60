// SPDX-License-Identifier: Apache-2.0
import CarillonCollections
import CarillonCore

/// The key of a registration: the properties of an observer that the service knows. Observers of the program with the
/// same key share one registration. Exceptions are observers that request retained values: each of them receives the
/// values when it is added.
public struct RegistrationKey: Hashable, Sendable {
    /// Nil matches any name.
    public let name: ExactText?
    /// Nil matches any object.
    public let object: ExactText?
    public let options: ObserverOptions
    /// A distinct number for each observer that shares with no other; 0 for observers that may share.
    public let number: UInt64

    public init(name: ExactText?, object: ExactText?, options: ObserverOptions, number: UInt64 = 0) {
        self.name = name
        self.object = object
        self.options = options
        self.number = number
    }
}
