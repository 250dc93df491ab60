// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonMQTT

/// The user properties of a bridge's messages. No other code knows their names.
struct MessageProperties: Equatable {
    enum Key: String {
        case object = "object"
        /// An object with characters that MQTT forbids, written as a level of a topic.
        case encodedObject = "object-percent"
        case serial = "serial"
        case count = "count"
        case run = "run"
        case hops = "hops"
        case time = "time"
        case value = "value"
        case widths = "widths"
        case whileRun = "while"
        case allSessions = "all-sessions"
        /// On ``BridgeTopic/Subject/online``: its presence shows that properties pass through.
        case carillon = "carillon"
    }

    /// The object; empty for none.
    var object = ""
    /// The serial number of the post in its session.
    var serial: UInt64?
    /// The number of the message among its bridge's messages on the topic: 1, 2, 3 and so on, so that a hole is a loss.
    var place: Place?
    /// The number of bridges that the message went through.
    var hops: UInt64 = 0
    /// The time of the post, in microseconds since 1970.
    var time: Int64?
    /// Whether it is a value that existed before, sent again.
    var isOldValue = false
    /// Whether the integers of a CBOR payload keep the widths that they had.
    var keepsWidths = false
    /// The run of the bridge that published a value that ends with its poster (R8), as in the bridge's presence. The
    /// value is over when that presence is.
    var boundTo: String?
    /// The identity in the other sessions of its machine, if it was posted for all sessions (G1); nil otherwise.
    var identity: String?

    struct Place: Equatable {
        /// The run that the count belongs to: a process that does not know the earlier counts begins a new run.
        let run: String
        let count: UInt64
    }

    static let maxRunBytes = 64

    init() {}

    /// Reads user properties. Of several with one name the first counts.
    ///
    /// - Returns: nil if a known property has an invalid value.
    init?(_ properties: [UserProperty]) {
        var texts: [Key: String] = [:]
        for property in properties {
            guard let key = Key(rawValue: property.name), texts[key] == nil else { continue }
            texts[key] = property.value
        }
        func number<Number: FixedWidthInteger>(_ key: Key, _ type: Number.Type) -> Number?? {
            guard let text = texts[key] else { return .some(nil) }
            guard let number = Number(text) else { return nil }
            return number
        }
        if let encoded = texts[.encodedObject] {
            guard let decoded = TopicLevel.decoded(encoded) else { return nil }
            object = decoded
        } else {
            object = texts[.object] ?? ""
        }
        guard let serial = number(.serial, UInt64.self), let count = number(.count, UInt64.self),
            let hops = number(.hops, UInt64.self), let time = number(.time, Int64.self), count != 0
        else { return nil }
        self.serial = serial
        self.hops = hops ?? 0
        self.time = time
        isOldValue = texts[.value] != nil
        keepsWidths = texts[.widths] != nil
        identity = texts[.allSessions].flatMap { (1...PostOptions.maxIdentity).contains($0.utf8.count) ? $0 : nil }
        boundTo = texts[.whileRun].flatMap { $0.isEmpty || $0.utf8.count > Self.maxRunBytes ? nil : $0 }
        if let run = texts[.run], let count, !run.isEmpty, run.utf8.count <= Self.maxRunBytes {
            place = Place(run: run, count: count)
        }
    }

    var all: [UserProperty] {
        var all: [UserProperty] = []
        func add(_ key: Key, _ value: String?) { if let value { all.append(UserProperty(key.rawValue, value)) } }
        if !object.isEmpty {
            if object.unicodeScalars.allSatisfy(TopicLevel.isAllowed) {
                add(.object, object)
            } else {
                add(.encodedObject, TopicLevel.encoded(object))
            }
        }
        add(.serial, serial.map(String.init))
        add(.count, place.map { String($0.count) })
        add(.run, place?.run)
        add(.hops, String(hops))
        add(.time, time.map(String.init))
        if isOldValue { add(.value, "1") }
        if keepsWidths { add(.widths, "1") }
        add(.whileRun, boundTo)
        add(.allSessions, identity)
        return all
    }
}
