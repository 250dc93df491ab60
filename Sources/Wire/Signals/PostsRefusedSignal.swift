// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonDBus

/// `PostsRefused`: the service refused posts of the receiver. It reports only posts that requested no reply, since the
/// others were answered with an error (E10).
public struct PostsRefusedSignal: CenterSignal, Equatable {
    /// The number of refused posts that no earlier signal has reported.
    public var count: UInt32
    /// The reason for the refusal of the last post.
    public var error: BusError

    public init(count: UInt32, error: BusError) {
        self.count = count
        self.error = error
    }

    public static let member: MemberName = "PostsRefused"
    public static let arguments: [Interface.Argument] = [
        .init("count", "u"), .init("error", "s"), .init("message", "s"),
    ]

    public init(from reader: inout MessageReader) throws(BusError) {
        count = try reader.read()
        let name: String = try reader.read()
        error = BusError(
            name: InterfaceName(rawValue: name) ?? "org.freedesktop.DBus.Error.Failed", message: try reader.read())
    }

    public func append(to writer: inout MessageWriter) {
        writer.append(count)
        writer.append(error.name.rawValue)
        writer.append(error.message)
    }
}
