// SPDX-License-Identifier: Apache-2.0
import CarillonDBus

/// `SuspensionChanged`: the suspension of the client begins or ends now (S1).
public struct SuspensionChangedSignal: CenterSignal, Equatable {
    public var isSuspended: Bool
    /// The raw value of a ``SuspensionCause``; later services may add causes.
    public var cause: String

    public init(isSuspended: Bool, cause: String) {
        self.isSuspended = isSuspended
        self.cause = cause
    }

    public static let member: MemberName = "SuspensionChanged"
    public static let arguments: [Interface.Argument] = [.init("suspended", "b"), .init("cause", "s")]

    public init(from reader: inout MessageReader) throws(BusError) {
        isSuspended = try reader.read()
        cause = try reader.read()
    }

    public func append(to writer: inout MessageWriter) {
        writer.append(isSuspended)
        writer.append(cause)
    }
}
