// SPDX-License-Identifier: Apache-2.0
import Collections

/// The values that are kept (R1), each alone with its name and object, in the order of their serials.
struct RetainedValues {
    private struct Kind: Hashable {
        let name: ExactText
        let object: ExactText

        init(_ name: String, _ object: String) {
            self.name = ExactText(name)
            self.object = ExactText(object)
        }

        init(_ notification: Notification) { self.init(notification.name, notification.object) }
    }

    private struct Slot {
        let serial: UInt64
        var value: RetainedValue?
    }

    /// The serials only grow.
    private var slots: [Slot] = []
    private var serials: [Kind: UInt64] = [:]
    /// How many go with each connection, of those that do.
    private var ofConnections: [ClientName: Int] = [:]
    /// When the first expires, as ``Notification/expiry``; nil when none does.
    private var firstExpiry: Int64?

    var count: Int { serials.count }
    var isEmpty: Bool { serials.isEmpty }
    var all: some Sequence<RetainedValue> { slots.lazy.compactMap(\.value) }

    subscript(name: String, object: String) -> RetainedValue? {
        serials[Kind(name, object)].flatMap { slots[index(from: $0)].value }
    }

    /// Whether a value with this serial may be put in: it is newer than all that there were.
    func mayPut(_ serial: UInt64) -> Bool { slots.last.map { $0.serial < serial } ?? true }

    /// - Returns: the one whose place it took.
    mutating func put(_ value: RetainedValue) -> RetainedValue? {
        let notification = value.notification
        invariant(mayPut(notification.serial), "R2: values are kept in the order of their serials")
        let replaced = remove(notification.name, notification.object)
        serials[Kind(notification)] = notification.serial
        slots.append(Slot(serial: notification.serial, value: value))
        if value.isOfConnection { ofConnections[notification.poster, default: 0] += 1 }
        if let expiry = notification.expiry { firstExpiry = min(firstExpiry ?? expiry, expiry) }
        return replaced
    }

    mutating func remove(_ name: String, _ object: String) -> RetainedValue? {
        guard let serial = serials.removeValue(forKey: Kind(name, object)) else { return nil }
        let index = index(from: serial)
        let value = slots[index].value.take()!
        if value.isOfConnection {
            let poster = value.notification.poster
            ofConnections[poster]! -= 1
            if ofConnections[poster] == 0 { ofConnections[poster] = nil }
        }
        if slots.count > 2 * count + 64 { slots.removeAll { $0.value == nil } }
        return value
    }

    /// Those of this name and object, nil for any, in their order.
    func matching(name: String?, object: String?) -> [RetainedValue] {
        if let name, let object { return self[name, object].map { [$0] } ?? [] }
        return all.filter { Self.matches($0, name, object) }
    }

    /// The first of those that a registration matches, with a serial beyond `after` and up to `through`.
    func first(matching registration: Registration, after: UInt64, through: UInt64) -> RetainedValue? {
        if let name = registration.name, let object = registration.object {
            guard let value = self[name, object] else { return nil }
            return value.notification.serial > after && value.notification.serial <= through ? value : nil
        }
        for slot in slots[index(from: after + 1)...] {
            guard slot.serial <= through else { return nil }
            if let value = slot.value, Self.matches(value, registration.name, registration.object) { return value }
        }
        return nil
    }

    private static func matches(_ value: RetainedValue, _ name: String?, _ object: String?) -> Bool {
        ExactText.matches(name, value.notification.name) && ExactText.matches(object, value.notification.object)
    }

    /// Who pays for the last one of a poster, which may have left.
    func payer(named poster: ClientName) -> Peer? { slots.last { $0.value?.payer.name == poster }?.value?.payer }

    /// Those that go when a connection does.
    func ofConnection(_ poster: ClientName) -> [RetainedValue] {
        guard ofConnections[poster] != nil else { return [] }
        return all.filter { $0.isOfConnection && $0.notification.poster == poster }
    }

    /// Those whose time is over.
    mutating func expired(at now: Int64) -> [RetainedValue] {
        guard let firstExpiry, firstExpiry <= now else { return [] }
        self.firstExpiry = all.compactMap(\.notification.expiry).filter { $0 > now }.min()
        return all.filter { $0.notification.expiry.map { $0 <= now } ?? false }
    }

    /// The place of the first slot whose serial is at least this one.
    private func index(from serial: UInt64) -> Int {
        var (low, high) = (0, slots.count)
        while low < high {
            let middle = (low + high) / 2
            if slots[middle].serial < serial { low = middle + 1 } else { high = middle }
        }
        return low
    }

    func checkInvariants(lastSerial: UInt64) throws(BrokenInvariant) {
        try require(zip(slots, slots.dropFirst()).allSatisfy { $0.serial < $1.serial }, "R2: values are in their order")
        try require(slots.last.map { $0.serial <= lastSerial } ?? true, "D4: no serial is from the future")
        try require(slots.count <= 2 * count + 64, "E4: values take as much room as there is of them")
        let values = Array(all)
        try require(values.count == count, "R1: one value of each name and object")
        for value in values {
            try require(
                serials[Kind(value.notification)] == value.notification.serial, "R1: a value is found by its name")
        }
        try require(
            Dictionary(grouping: values.filter(\.isOfConnection), by: \.notification.poster).mapValues(\.count)
                == ofConnections, "R1: what goes with a connection is counted")
        let first = values.compactMap(\.notification.expiry).min()
        try require(first.map { firstExpiry ?? .max <= $0 } ?? true, "R1: what expires first is known")
    }
}
