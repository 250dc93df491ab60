// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonDBus

/// The D-Bus method that opens a channel: the reply contains the caller's end of a socket, over which both sides
/// exchange ``ChannelFrame`` (F2). The argument for options is reserved: every option is refused.
public struct OpenChannel: CenterMethod {
    public init() {}

    public static let member: MemberName = "OpenChannel"
    public static let inputs: [Interface.Argument] = [.init("options", "a{sv}")]
    public static let outputs: [Interface.Argument] = [.init("channel", "h")]

    public init(from arguments: inout MessageReader) throws(BusError) {
        try mappingCenterErrors { () throws(CenterError) in
            try readOptions(&arguments) { option throws(CenterError) in throw option.unknown }
        }
    }

    public func append(to writer: inout MessageWriter) {
        writer.array(of: "{sv}") { _ in }
    }

    public static func readReply(from reader: inout MessageReader) throws(BusError) -> FileDescriptor {
        try reader.readDescriptor()
    }

    public static func append(_ reply: FileDescriptor, to writer: inout MessageWriter) {
        writer.append(reply)
    }
}
