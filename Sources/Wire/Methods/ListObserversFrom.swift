// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonDBus

/// The D-Bus method that lists the observers of a client in pages, in the order of their numbers: a reply contains
/// observers behind ``after``. It serves clients with more observers than one reply of ``ListObservers`` can hold.
///
/// A reply may have fewer than ``most`` observers even if more follow, since the service also limits its size. An empty
/// reply ends the list.
public struct ListObserversFrom: CenterMethod {
    /// The unique name of the client; a text, as the caller may send any string.
    public var client: String
    /// The number of the last known observer; 0 for the first page.
    public var after: ObserverID
    /// The maximum number of observers in the reply.
    public var most: UInt32

    public init(of client: String, after: ObserverID = ObserverID(rawValue: 0), most: UInt32 = 1024) {
        self.client = client
        self.after = after
        self.most = most
    }

    public static let member: MemberName = "ListObserversFrom"
    public static let inputs: [Interface.Argument] = [.init("client", "s"), .init("after", "t"), .init("most", "u")]
    public static let outputs: [Interface.Argument] = [
        .init("observers", "a(tsssa{sv})", qtType: "QList<CarillonRegistration>")
    ]

    public init(from arguments: inout MessageReader) throws(BusError) {
        client = try arguments.read()
        after = ObserverID(rawValue: try arguments.read())
        most = try arguments.read()
    }

    public func append(to writer: inout MessageWriter) {
        writer.append(client)
        writer.append(after.rawValue)
        writer.append(most)
    }

    public static func readReply(from reader: inout MessageReader) throws(BusError) -> [ListedRegistration] {
        var observers: [ListedRegistration] = []
        var rows = try reader.readContainer(.array)
        while !rows.isAtEnd {
            var row = try rows.readContainer(.structure)
            observers.append(
                ListedRegistration(
                    observer: try ListedObserver(from: &row), options: try UserInfoCoding.read(from: &row)))
        }
        return observers
    }

    public static func append(_ reply: [ListedRegistration], to writer: inout MessageWriter) {
        writer.array(of: "(tsssa{sv})") { writer in
            for each in reply {
                writer.structure { writer in
                    each.observer.append(to: &writer)
                    UserInfoCoding.append(each.options.sorted { $0.key < $1.key }, to: &writer)
                }
            }
        }
    }
}

/// An observer with all its options.
public struct ListedRegistration: Sendable {
    public var observer: ListedObserver
    /// The options of ``AddObserver`` except the suspension behavior, and options of a later service.
    public var options: [String: PropertyList]

    public init(observer: ListedObserver, options: [String: PropertyList]) {
        self.observer = observer
        self.options = options
    }
}

extension ListedRegistration {
    public init(_ registration: Registration) {
        var options: [String: PropertyList] = [
            "automatic-suspension": .boolean(registration.options.automaticSuspension),
            "run-loop-mode": .string(registration.options.runLoopMode.rawValue),
        ]
        if registration.options.isMonitor { options["monitor"] = .boolean(true) }
        if registration.options.minimumInterval > 0 {
            options["minimum-interval"] = .uint32(registration.options.minimumInterval)
        }
        self.init(observer: ListedObserver(registration), options: options)
    }

    /// The minimum size in a reply, in bytes: the observer, and each option with its length, signature, NUL and
    /// padding.
    public var byteCount: Int {
        options.reduce(observer.byteCount + 8) { size, option in
            let text = if case .string(let text) = option.value { text.utf8.count } else { 0 }
            return size + option.key.utf8.count + text + 32
        }
    }
}
