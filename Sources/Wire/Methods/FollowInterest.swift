// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonCore
import CarillonDBus

/// The method that lists the names observed by other clients, in byte order and behind ``after`` (G4).
///
/// The first call subscribes the caller to ``InterestChangedSignal``. The signal is sent once when the list has changed
/// since the caller's last call with an empty ``after``; the next such call arms it again.
///
/// A reply with fewer than ``most`` names need not be the last, since the service also limits its size. An empty reply
/// is the last.
public struct FollowInterest: CenterMethod {
    public typealias Reply = DistributedCenter.Wanted

    /// The last known name; empty for the first page.
    public var after: String
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

    /// Returns the size of a name in a reply, in bytes, with its length, NUL and padding.
    public static func byteCount(of name: String) -> Int { 8 + name.utf8.count }
}
