// SPDX-License-Identifier: Apache-2.0
import Collections

/// The values that are kept (R1), each alone with its kind, in the order of their serials.
struct RetainedValues {
    private struct Pair: Hashable {
        let name: ExactText
        let object: ExactText

        init(_ name: String, _ object: String) {
            self.name = ExactText(name)
            self.object = ExactText(object)
        }

        init(_ kind: NotificationKind) { self.init(kind.name, kind.object) }
    }

    private struct Slot {
        let serial: UInt64
        var value: RetainedValue?
    }

    private let meter: StepMeter
    /// The serials only grow.
    private var slots: [Slot] = []
    private var serials: [NotificationKind: UInt64] = [:]
    /// For a name and object that have values from outside, the serials of all, in their order. Most have none, and cost
    /// nothing here.
    private var beside: [Pair: [UInt64]] = [:]
    /// How many go with each connection, of those that do.
    private var ofConnections: [ClientName: Int] = [:]
    /// When the first expires, as ``Notification/expiry``; nil when none does.
    private var firstExpiry: Int64?

    init(meter: StepMeter) {
        self.meter = meter
    }

    var count: Int { serials.count }
    var isEmpty: Bool { serials.isEmpty }
    var all: some Sequence<RetainedValue> { slots.lazy.compactMap(\.value) }

    subscript(kind: NotificationKind) -> RetainedValue? { serials[kind].flatMap { self[serial: $0] } }

    private subscript(serial serial: UInt64) -> RetainedValue? { slots[index(from: serial)].value }

    /// The serials of all values of a name and object, in their order.
    private func serials(_ name: String, _ object: String) -> [UInt64] {
        if !beside.isEmpty, let all = beside[Pair(name, object)] { return all }
        return serials[NotificationKind(name: name, object: object)].map { [$0] } ?? []
    }

    /// Whether a value with this serial may be put in: it is newer than all that there were.
    func mayPut(_ serial: UInt64) -> Bool { slots.last.map { $0.serial < serial } ?? true }

    /// - Returns: the one whose place it took.
    mutating func put(_ value: RetainedValue) -> RetainedValue? {
        let notification = value.notification
        invariant(mayPut(notification.serial), "R2: values are kept in the order of their serials")
        let kind = notification.kind
        let replaced = remove(kind)
        noteBeside(kind, notification.serial)
        serials[kind] = notification.serial
        slots.append(Slot(serial: notification.serial, value: value))
        if value.isOfConnection { ofConnections[notification.poster, default: 0] += 1 }
        if let expiry = notification.expiry { firstExpiry = min(firstExpiry ?? expiry, expiry) }
        return replaced
    }

    private mutating func noteBeside(_ kind: NotificationKind, _ serial: UInt64) {
        guard kind.origin != nil || !beside.isEmpty else { return }
        let pair = Pair(kind)
        if kind.origin == nil {
            beside[pair]?.append(serial)
        } else {
            let local = local(kind)
            beside[pair, default: local.map { [$0] } ?? []].append(serial)
        }
    }

    private mutating func forgetBeside(_ kind: NotificationKind, _ serial: UInt64) {
        guard !beside.isEmpty, let place = beside.index(forKey: Pair(kind)) else { return }
        meter.count(beside.values[place].count)
        let index = Self.place(of: serial, in: beside.values[place])
        beside.values[place].remove(at: index)
        let left = beside.values[place]
        if left.isEmpty || (left.count == 1 && left[0] == local(kind)) { beside.remove(at: place) }
    }

    /// The serial of the value of this session.
    private func local(_ kind: NotificationKind) -> UInt64? {
        serials[NotificationKind(name: kind.name, object: kind.object)]
    }

    mutating func remove(_ kind: NotificationKind) -> RetainedValue? {
        guard let serial = serials.removeValue(forKey: kind) else { return nil }
        forgetBeside(kind, serial)
        let index = index(from: serial)
        let value = slots[index].value.take()!
        if value.isOfConnection {
            let poster = value.notification.poster
            ofConnections[poster]! -= 1
            if ofConnections[poster] == 0 { ofConnections[poster] = nil }
        }
        if slots.count > 2 * count + 64 {
            meter.count(slots.count)
            slots.removeAll { $0.value == nil }
        }
        return value
    }

    /// Those of this name and object, nil for any, in their order.
    func matching(name: String?, object: String?) -> [RetainedValue] {
        if let name, let object { return serials(name, object).compactMap { self[serial: $0] } }
        meter.count(slots.count)
        return all.filter { Self.matches($0, name, object) }
    }

    /// Those with a serial beyond this one, in their order.
    func all(after serial: UInt64) -> some Sequence<RetainedValue> {
        slots[index(from: serial == .max ? serial : serial + 1)...].lazy.compactMap(\.value)
    }

    /// The first of those that a registration matches, with a serial beyond `after` and up to `through`.
    func first(matching registration: Registration, after: UInt64, through: UInt64) -> RetainedValue? {
        if let name = registration.name, let object = registration.object {
            let serials = serials(name, object)
            let place = Self.place(of: after + 1, in: serials)
            guard place < serials.count, serials[place] <= through else { return nil }
            return self[serial: serials[place]]
        }
        for slot in slots[index(from: after + 1)...] {
            meter.count()
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
        meter.count(slots.count)
        return all.filter { $0.isOfConnection && $0.notification.poster == poster }
    }

    /// Those whose time is over.
    mutating func expired(at now: Int64) -> [RetainedValue] {
        guard let firstExpiry, firstExpiry <= now else { return [] }
        meter.count(2 * slots.count)
        self.firstExpiry = all.compactMap(\.notification.expiry).filter { $0 > now }.min()
        return all.filter { $0.notification.expiry.map { $0 <= now } ?? false }
    }

    /// The place of the first slot whose serial is at least this one.
    private func index(from serial: UInt64) -> Int { Self.place(in: slots.count) { slots[$0].serial < serial } }

    /// The place of the first serial that is at least this one.
    private static func place(of serial: UInt64, in serials: [UInt64]) -> Int {
        place(in: serials.count) { serials[$0] < serial }
    }

    private static func place(in count: Int, _ isBefore: (Int) -> Bool) -> Int {
        var (low, high) = (0, count)
        while low < high {
            let middle = (low + high) / 2
            if isBefore(middle) { low = middle + 1 } else { high = middle }
        }
        return low
    }

    func checkInvariants(lastSerial: UInt64) throws(BrokenInvariant) {
        try require(zip(slots, slots.dropFirst()).allSatisfy { $0.serial < $1.serial }, "R2: values are in their order")
        try require(slots.last.map { $0.serial <= lastSerial } ?? true, "D4: no serial is from the future")
        try require(slots.count <= 2 * count + 64, "E4: values take as much room as there is of them")
        let values = Array(all)
        try require(values.count == count, "R1: one value of each name, object and origin")
        for value in values {
            try require(
                serials[value.notification.kind] == value.notification.serial, "R1: a value is found by its name")
        }
        let pairs = Dictionary(grouping: values) { Pair($0.notification.kind) }
            .filter { $0.value.contains { $0.notification.kind.origin != nil } }
        try require(
            pairs.mapValues { $0.map(\.notification.serial) } == beside,
            "G3: values from elsewhere are beside those of here")
        try require(
            Dictionary(grouping: values.filter(\.isOfConnection), by: \.notification.poster).mapValues(\.count)
                == ofConnections, "R1: what goes with a connection is counted")
        let first = values.compactMap(\.notification.expiry).min()
        try require(first.map { firstExpiry ?? .max <= $0 } ?? true, "R1: what expires first is known")
    }
}
