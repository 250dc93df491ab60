// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonDBus

/// The D-Bus method that removes one observer of the caller (D8).
public struct RemoveObserver: CenterMethod {
    public var observer: ObserverID

    public init(_ observer: ObserverID) {
        self.observer = observer
    }

    public static let member: MemberName = "RemoveObserver"
    public static let inputs: [Interface.Argument] = [.init("observer", "t")]

    public init(from arguments: inout MessageReader) throws(BusError) {
        observer = ObserverID(rawValue: try arguments.read())
    }

    public func append(to writer: inout MessageWriter) {
        writer.append(observer.rawValue)
    }
}
