// SPDX-License-Identifier: Apache-2.0
import CarillonDBus

/// The D-Bus method that suspends or resumes another client, so that a developer can test an application (B3).
///
/// The override takes precedence over the client's own ``SetSuspended`` and over activity, until it is revoked or the
/// client leaves the bus. For a client that is unknown to the service, or hidden from the caller, the call fails with
/// the bus's error NameHasNoOwner. A text that is not a unique name, or an unknown state, yields InvalidArgs.
public struct OverrideSuspension: CenterMethod {
    /// The unique name of the client; a text, as the caller may send any string.
    public var client: String
    /// The override; nil revokes it.
    public var isSuspended: Bool?

    public init(of client: String, _ isSuspended: Bool?) {
        self.client = client
        self.isSuspended = isSuspended
    }

    public static let member: MemberName = "OverrideSuspension"
    public static let inputs: [Interface.Argument] = [.init("client", "s"), .init("state", "s")]

    /// The states as texts on the bus.
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
