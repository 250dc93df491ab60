// SPDX-License-Identifier: Apache-2.0
import CarillonDBus

/// A D-Bus method with the arguments name and object, which select items such as observers or retained values. An empty
/// name or object selects any.
public protocol MatchingMethod: CenterMethod {
    var name: String { get }
    var object: String { get }

    init(name: String, object: String)
}

extension MatchingMethod {
    public static var inputs: [Interface.Argument] { [.init("name", "s"), .init("object", "s")] }

    public init(from arguments: inout MessageReader) throws(BusError) {
        let name: String = try arguments.read()
        self.init(name: name, object: try arguments.read())
    }

    public func append(to writer: inout MessageWriter) {
        writer.append(name)
        writer.append(object)
    }
}

/// A D-Bus method that removes the selected items and replies with their number.
public protocol RemovingMethod: MatchingMethod where Reply == Int {}

extension RemovingMethod {
    public static var outputs: [Interface.Argument] { [.init("removed", "u")] }

    public static func readReply(from reader: inout MessageReader) throws(BusError) -> Int {
        Int(try reader.read(UInt32.self))
    }

    public static func append(_ reply: Int, to writer: inout MessageWriter) {
        writer.append(UInt32(reply))
    }
}
