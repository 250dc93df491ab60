// SPDX-License-Identifier: Apache-2.0
import CarillonCollections
import CarillonCore

/// The identity of a registration at the service: the name, the object and the options of observers. Observers of the
/// program with equal keys share one registration.
///
/// An observer that requests retained values shares with no other. It has a number of its own, because the service
/// sends the retained values once, behind each new registration.
public struct RegistrationKey: Hashable, Sendable {
    /// Nil matches any name.
    public let name: ExactText?
    /// Nil matches any object.
    public let object: ExactText?
    public let options: ObserverOptions
    /// A distinct number for an observer with a registration of its own; 0 for observers that may share.
    public let number: UInt64

    public init(name: ExactText?, object: ExactText?, options: ObserverOptions, number: UInt64 = 0) {
        self.name = name
        self.object = object
        self.options = options
        self.number = number
    }
}
