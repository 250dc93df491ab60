// SPDX-License-Identifier: Apache-2.0
import CarillonDBus

/// Suspends or resumes another client, to test its application: it holds over the client's own word and over activity,
/// until it is taken back or the client leaves (B3).
///
/// A client that the service does not know, and one that the caller may not see, is the bus's error NameHasNoOwner; what
/// is no unique name, or no such word, is InvalidArgs.
public struct OverrideSuspension: CenterMethod {
    /// A text, as the caller may ask for anything.
    public var client: String
    /// Nil takes it back.
    public var isSuspended: Bool?

    public init(of client: String, _ isSuspended: Bool?) {
        self.client = client
        self.isSuspended = isSuspended
    }

    public static let member: MemberName = "OverrideSuspension"
    public static let inputs: [Interface.Argument] = [.init("client", "s"), .init("state", "s")]

    private static let words: [(word: String, isSuspended: Bool?)] = [
        ("suspended", true), ("active", false), ("none", nil),
    ]

    public init(from arguments: inout MessageReader) throws(BusError) {
        client = try arguments.read()
        let text: String = try arguments.read()
        guard let (_, isSuspended) = Self.words.first(where: { $0.word == text }) else {
            throw .invalidArgs("the state '\(text)' is none of suspended, active and none")
        }
        self.isSuspended = isSuspended
    }

    public func append(to writer: inout MessageWriter) {
        writer.append(client)
        writer.append(Self.words.first { $0.isSuspended == isSuspended }!.word)
    }
}
