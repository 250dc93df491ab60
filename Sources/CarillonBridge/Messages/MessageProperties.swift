// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonMQTT

/// The properties that a bridge adds to its messages, as MQTT user properties. No other code knows their names.
struct MessageProperties: Equatable {
    /// The names of the user properties. Each stands for the member of the same meaning below.
    enum Key: String {
        case object = "object"
        /// The object, percent-encoded like a topic level (``TopicLevel``), if it has characters that MQTT forbids.
        case encodedObject = "object-percent"
        case serial = "serial"
        /// `count` and `run` are the two parts of ``sequenceNumber``.
        case count = "count"
        case run = "run"
        case hops = "hops"
        case time = "time"
        /// The name of ``isOldValue``; its presence means true.
        case value = "value"
        /// The name of ``keepsWidths``; its presence means true.
        case widths = "widths"
        /// The name of ``boundTo``.
        case whileRun = "while"
        /// The name of ``identity``.
        case allSessions = "all-sessions"
        /// Only in presence messages (``BridgeTopic/Subject/online``): its arrival shows that no intermediary removes
        /// user properties.
        case carillon = "carillon"
    }

    /// The object of the notification; empty for none.
    var object = ""
    /// The serial number of the post, which the service of its session has assigned.
    var serial: UInt64?
    /// The sequence number of the message on its topic; nil for a message of a plain client.
    var sequenceNumber: SequenceNumber?
    /// The number of bridges through which the message has passed, to stop loops.
    var hops: UInt64 = 0
    /// The time of the post, in microseconds since 1970; nil if it is unknown.
    var time: Int64?
    /// Whether the bridge sends a retained value again that had existed before.
    var isOldValue = false
    /// Whether the widths of integers in a CBOR payload are significant (`uint8` to `int64`).
    var keepsWidths = false
    /// The run of the publishing bridge, for a value that ends with its poster (R8); nil for other values. The value
    /// has ended when the host's presence names another run, or says that the host is offline.
    var boundTo: String?
    /// The identity of a notification that was posted for all sessions of its machine (G1); nil otherwise. By it
    /// another session recognizes that it has the notification already.
    var identity: String?

    /// A sequence number: the number of a message among all messages of one run of a bridge on a topic. Numbers begin
    /// with 1, so that a hole is a loss.
    struct SequenceNumber: Equatable {
        /// The run in which the number was counted. A process that does not know the earlier numbers begins a new run.
        let run: String
        /// The number.
        let count: UInt64
    }

    /// The maximum length of a run, in bytes.
    static let maxRunBytes = 64

    init() {}

    /// Reads user properties; others are ignored. Of several with one name the first counts.
    ///
    /// - Returns: nil if a known property has an invalid value.
    init?(_ properties: [UserProperty]) {
        var texts: [Key: String] = [:]
        for property in properties {
            guard let key = Key(rawValue: property.name), texts[key] == nil else { continue }
            texts[key] = property.value
        }
        // Returns nil for an invalid number, and .some(nil) without the property.
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
        // Sequence numbers begin with 1, so a `count` of 0 is invalid.
        guard let serial = number(.serial, UInt64.self), let count = number(.count, UInt64.self),
            let hops = number(.hops, UInt64.self), let time = number(.time, Int64.self), count != 0
        else { return nil }
        self.serial = serial
        self.hops = hops ?? 0
        self.time = time
        isOldValue = texts[.value] != nil
        keepsWidths = texts[.widths] != nil
        identity = texts[.allSessions].flatMap {
            (1...PostOptions.maxDeduplicationIDBytes).contains($0.utf8.count) ? $0 : nil
        }
        boundTo = texts[.whileRun].flatMap { $0.isEmpty || $0.utf8.count > Self.maxRunBytes ? nil : $0 }
        if let run = texts[.run], let count, !run.isEmpty, run.utf8.count <= Self.maxRunBytes {
            sequenceNumber = SequenceNumber(run: run, count: count)
        }
    }

    /// The user properties of these values.
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
        add(.count, sequenceNumber.map { String($0.count) })
        add(.run, sequenceNumber?.run)
        add(.hops, String(hops))
        add(.time, time.map(String.init))
        if isOldValue { add(.value, "1") }
        if keepsWidths { add(.widths, "1") }
        add(.whileRun, boundTo)
        add(.allSessions, identity)
        return all
    }
}
