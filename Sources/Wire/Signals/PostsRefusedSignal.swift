// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonDBus

/// `PostsRefused`: posts of the receiver were refused that wanted no answer (E10).
public struct PostsRefusedSignal: CenterSignal, Equatable {
    /// Those that no earlier signal has told.
    public var count: UInt32
    /// Why the last of them was refused.
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
