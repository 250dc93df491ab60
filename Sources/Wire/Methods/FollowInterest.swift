// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonCore
import CarillonDBus

/// The names that observers of other clients want, in the order of their bytes: those behind ``after`` (G4). From the
/// first call on the caller is told by ``InterestChangedSignal`` when that has changed since it asked from the beginning,
/// once until it asks so again.
///
/// An answer with fewer than ``most`` need not be the last: the service bounds it by its size too. One without names is.
public struct FollowInterest: CenterMethod {
    public typealias Reply = DistributedCenter.Wanted

    /// The last name that is known; empty for the first.
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

    /// What a name takes in an answer, in bytes: with its length, NUL and padding.
    public static func byteCount(of name: String) -> Int { 8 + name.utf8.count }
}
