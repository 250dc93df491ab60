// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonCore
import CarillonDBus

/// The D-Bus method that lists the names observed by other clients, in byte order and in pages: a reply contains names
/// behind ``after`` (G4). The bridge subscribes at the broker to these names.
///
/// The first call also subscribes the caller to ``InterestChangedSignal``. This signal is sent at most once after each
/// call with an empty ``after``, when the list changes.
///
/// A reply may have fewer than ``most`` names even if more follow, since the service also limits its size. An empty
/// reply ends the list.
public struct FollowInterest: CenterMethod {
    public typealias Reply = DistributedCenter.Wanted

    /// The last known name; empty for the first page.
    public var after: String
    /// The maximum number of names in the reply.
    public var most: UInt32

    public init(after: String = "", most: UInt32 = 1024) {
        self.after = after
        self.most = most
    }

    public static let member: MemberName = "FollowInterest"
    public static let inputs: [Interface.Argument] = [.init("after", "s"), .init("most", "u")]
    public static let outputs: [Interface.Argument] = [.init("names", "as"), .init("any", "b")]

    public init(from arguments: inout MessageReader) throws(BusError) {
        after = try arguments.read()
        most = try arguments.read()
    }

    public func append(to writer: inout MessageWriter) {
        writer.append(after)
        writer.append(most)
    }

    public static func readReply(from reader: inout MessageReader) throws(BusError) -> Reply {
        var names: [String] = []
        var elements = try reader.readContainer(.array)
        while !elements.isAtEnd { names.append(try elements.readString()) }
        return Reply(names: names, any: try reader.read())
    }

    public static func append(_ reply: Reply, to writer: inout MessageWriter) {
        writer.array(of: "s") { writer in for name in reply.names { writer.append(name) } }
        writer.append(reply.any)
    }

    /// Returns the maximum size of a name in a reply, in bytes, with its length field, NUL and padding.
    public static func byteCount(of name: String) -> Int { 8 + name.utf8.count }
}
