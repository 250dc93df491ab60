// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonDBus

/// The outcome of a post on a channel: it corresponds to the reply of the D-Bus method ``Post``, or its error.
public struct ChannelOutcome: Equatable, Sendable {
    /// The number of matching clients; 0 for a post that is queued or refused.
    public let receivers: Int
    /// The name of the error; empty for an accepted post.
    public let errorName: String
    /// The message of the error; empty for an accepted post.
    public let message: String

    /// Creates the outcome of an accepted post.
    public init(receivers: Int) {
        self.receivers = receivers
        errorName = ""
        message = ""
    }

    /// Creates the outcome of a refused post. The message has at most 1 KiB; long quotations from the post are
    /// shortened.
    public init(_ error: BusError) {
        receivers = 0
        errorName = error.name.rawValue
        let words = error.shortened(to: Self.longestMessage)
        // D-Bus texts hold no NUL character.
        message = words.message.utf8.contains(0) ? words.message.replacingNulls : words.message
    }

    init(receivers: Int, errorName: String, message: String) {
        self.receivers = receivers
        self.errorName = errorName
        self.message = message
    }

    /// The maximum size of a message, in bytes.
    private static let longestMessage = 1 << 10

    /// The error; nil for an accepted post.
    public var error: BusError? {
        guard !errorName.isEmpty else { return nil }
        return BusError(
            name: InterfaceName(rawValue: errorName) ?? "org.freedesktop.DBus.Error.Failed", message: message)
    }
}

extension String {
    /// The text with a question mark for each NUL character.
    fileprivate var replacingNulls: String { String(decoding: utf8.map { $0 == 0 ? 0x3F : $0 }, as: UTF8.self) }
}
