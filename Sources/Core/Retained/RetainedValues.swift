// SPDX-License-Identifier: Apache-2.0
import CarillonCollections

/// The store of retained values (R1): one value for each ``NotificationKey`` (name, object and origin), in the order of
/// their serials. Several indexes find values by name, object, poster, payer and expiry.
///
/// The center owns the only store. A *payer* is the peer that is charged for the values of a poster, also after the
/// poster has left.
struct RetainedValues {
    /// A name and an object, compared byte for byte. Values of different origins may have the same pair.
    private struct Pair: Hashable {
        let name: ExactText
        let object: ExactText

        init(_ name: String, _ object: String) {
            self.name = ExactText(name)
            self.object = ExactText(object)
        }

        init(_ key: NotificationKey) { self.init(key.name, key.object) }
    }

    private let meter: StepMeter
    /// The values by their serials. A new value has a greater serial than all others.
    private var values: [UInt64: RetainedValue] = [:]
    /// All serials, in order.
    private var order = SortedSet<UInt64>()
    /// The serial of the value of each key.
    private var serials: [NotificationKey: UInt64] = [:]
    /// The serials by name and by object, for observers that match only one of them.
    private var names: [ExactText: SortedSet<UInt64>] = [:]
    private var objects: [ExactText: SortedSet<UInt64>] = [:]
    /// For a name and object with a value from outside this session, the serials of all its values, in order. A name
    /// and object with only a value of this session has no entry, to save memory.
    private var outsidePairs: [Pair: SortedSet<UInt64>] = [:]
    /// The serials of values with `while-connected`, by poster. They are removed when the poster leaves.
    private var ofConnections: [ClientName: SortedSet<UInt64>] = [:]
    /// The serials of values that other sessions of the machine get as well.
    private var forSessions = SortedSet<UInt64>()
    /// The payer of each poster's values, and the serials of these values.
    private var payers: [ClientName: (peer: Peer, serials: SortedSet<UInt64>)] = [:]
    /// The amount of the values of each payer from each origin. The limits `retained-per-client` and
    /// `retained-bytes-per-client` apply to it (R6).
    private var amounts: [PayerOrigin: Amount] = [:]
    /// The other machines from which each payer's values come.
    private var machines: [ClientName: Set<ExactText>] = [:]
    /// The payers that have left, and the amount of their values from each other machine.
    private var departed: Set<ClientName> = []
    private var departedAmounts: [ExactText: Amount] = [:]
    /// The expiries of values, the earliest first. Some belong to values that were removed since.
    private var expiries = PriorityQueue<Expiry>()

    /// The time of a value's expiry, as ``Clock/uptime``.
    private struct Expiry: Comparable {
        let time: Int64
        let serial: UInt64

        static func < (left: Expiry, right: Expiry) -> Bool { (left.time, left.serial) < (right.time, right.serial) }
    }

    /// A payer and an origin of its values: this session, another session of this machine, or another machine. All
    /// users of a machine count as one origin.
    private struct PayerOrigin: Hashable {
        let payer: ClientName
        let text: ExactText
        let isMachine: Bool

        init(payer: ClientName, machine: ExactText) { (self.payer, text, isMachine) = (payer, machine, true) }

        init(_ payer: ClientName, _ origin: OutsideOrigin?) {
            self.payer = payer
            // The host of another machine, or the user of another session; empty for this session.
            text = ExactText(origin?.host ?? origin?.user ?? "")
            isMachine = origin?.host != nil
        }
    }

    /// An amount of values: their number, and their size in bytes.
    struct Amount: Equatable {
        var count = 0
        var byteCount = 0

        static func += (left: inout Amount, right: Amount) {
            left.count += right.count
            left.byteCount += right.byteCount
        }
    }

    init(meter: StepMeter) {
        self.meter = meter
    }

    /// Releases memory that removed values have left unused (E8).
    mutating func releaseMemory() {
        values.releaseMemory()
        order.releaseMemory()
        serials.releaseMemory()
        names.releaseMemory()
        objects.releaseMemory()
        outsidePairs.releaseMemory()
        ofConnections.releaseMemory()
        forSessions.releaseMemory()
        payers.releaseMemory()
        amounts.releaseMemory()
        machines.releaseMemory()
        departed.releaseMemory()
        departedAmounts.releaseMemory()
        expiries.releaseMemory()
    }

    var count: Int { values.count }
    var isEmpty: Bool { values.isEmpty }
    /// All values in the order of their serials.
    var all: some Sequence<RetainedValue> { snapshot.all }

    /// A copy of the values at one moment. It shares memory with the store until the store changes.
    struct Snapshot {
        fileprivate let values: [UInt64: RetainedValue]
        fileprivate let order: SortedSet<UInt64>

        /// The values in the order of their serials.
        var all: some Sequence<RetainedValue> { order.lazy.map { values[$0]! } }
    }

    var snapshot: Snapshot { Snapshot(values: values, order: order) }

    subscript(key: NotificationKey) -> RetainedValue? { serials[key].flatMap { values[$0] } }

    /// Whether a value with this serial may be stored: only if it is newer than all present values.
    func mayPut(_ serial: UInt64) -> Bool { order.last.map { $0 < serial } ?? true }

    /// Stores a value.
    ///
    /// - Returns: the older value of the same key, which it replaced; nil for none.
    mutating func put(_ value: RetainedValue) -> RetainedValue? {
        let notification = value.notification
        let serial = notification.serial
        invariant(mayPut(serial), "R2: values are kept in the order of their serials")
        let key = notification.key
        let replaced = remove(key)
        addToOutsidePairs(key, serial)
        serials[key] = serial
        values[serial] = value
        order.insert(serial)
        names[ExactText(key.name), default: SortedSet()].insert(serial)
        objects[ExactText(key.object), default: SortedSet()].insert(serial)
        if value.isWhileConnected { ofConnections[notification.poster, default: SortedSet()].insert(serial) }
        if value.retention.goesToAllSessions { forSessions.insert(serial) }
        payers[value.payer.name, default: (value.payer, SortedSet())].serials.insert(serial)
        payers[value.payer.name]!.peer = value.payer
        charge(value, 1)
        if let expiry = notification.expiry {
            expiries.insert(Expiry(time: expiry, serial: serial))
            // The expiries of removed values are deleted only when they are many, so that a removal is cheap.
            if expiries.count > 2 * values.count + 64 {
                meter.count(expiries.count)
                expiries.removeAll { [values] in values[$0.serial] == nil }
            }
        }
        return replaced
    }

    /// Adds a value to the amounts of its payer and origin, or with sign -1 subtracts it.
    private mutating func charge(_ value: RetainedValue, _ sign: Int) {
        let payerOrigin = PayerOrigin(value.payer.name, value.notification.key.origin)
        var amount = amounts[payerOrigin] ?? Amount()
        amount.count += sign
        amount.byteCount += sign * value.byteCount
        amounts[payerOrigin] = amount.count == 0 ? nil : amount
        guard payerOrigin.isMachine else { return }
        if amount.count == 0 {
            machines[payerOrigin.payer]!.remove(payerOrigin.text)
            if machines[payerOrigin.payer]!.isEmpty { machines[payerOrigin.payer] = nil }
        } else {
            machines[payerOrigin.payer, default: []].insert(payerOrigin.text)
        }
        if departed.contains(payerOrigin.payer) {
            addDeparted(Amount(count: sign, byteCount: sign * value.byteCount), payerOrigin.text)
        }
    }

    /// Adds to the amount that departed payers have left behind from a machine.
    private mutating func addDeparted(_ amount: Amount, _ machine: ExactText) {
        departedAmounts[machine, default: Amount()] += amount
        if departedAmounts[machine]!.count == 0 { departedAmounts[machine] = nil }
    }

    /// Records that a payer has left, or has returned.
    ///
    /// The values from a machine that departed payers left behind count for the next payer of values from that machine.
    /// Otherwise each start of the bridge would give a machine the capacity of another poster.
    mutating func note(_ payer: ClientName, hasLeft: Bool) {
        guard payers[payer] != nil, departed.contains(payer) != hasLeft else { return }
        if hasLeft { departed.insert(payer) } else { departed.remove(payer) }
        meter.count(machines[payer]?.count ?? 0)
        for machine in machines[payer] ?? [] {
            let amount = amounts[PayerOrigin(payer: payer, machine: machine)]!
            addDeparted(
                hasLeft ? amount : Amount(count: -amount.count, byteCount: -amount.byteCount), machine)
        }
    }

    /// Returns the amount of a payer's values from one origin, to which the limits of a poster apply. For a machine it
    /// includes the values of departed payers.
    ///
    /// - Parameters:
    ///   - payer: the name of the payer; nil for a payer without values.
    ///   - origin: the origin; nil for this session.
    func amount(of payer: ClientName?, from origin: OutsideOrigin?) -> Amount {
        let left = origin?.host.flatMap { departedAmounts[ExactText($0)] } ?? Amount()
        // All departed payers count as one payer.
        if let payer, origin?.host != nil, departed.contains(payer) { return left }
        var amount = payer.flatMap { amounts[PayerOrigin($0, origin)] } ?? Amount()
        amount += left
        return amount
    }

    /// Whether a value is included in ``amount(of:from:)`` of this payer and of the value's origin.
    func isCounted(_ value: RetainedValue, for payer: Peer?) -> Bool {
        value.payer === payer
            || value.notification.key.origin?.host != nil && departed.contains(value.payer.name)
    }

    /// Adds a new value to the index ``outsidePairs``, if its name and object have a value from outside. A new entry
    /// begins with this session's value, if there is one.
    private mutating func addToOutsidePairs(_ key: NotificationKey, _ serial: UInt64) {
        guard key.origin != nil || !outsidePairs.isEmpty else { return }
        let pair = Pair(key)
        if outsidePairs[pair] != nil {
            outsidePairs[pair]!.insert(serial)
        } else if key.origin != nil {
            outsidePairs[pair] = SortedSet(sorted: [local(key), serial].compactMap(\.self))
        }
    }

    /// Removes a value from that index, and the entry when no value from outside is left in it.
    private mutating func removeFromOutsidePairs(_ key: NotificationKey, _ serial: UInt64) {
        let pair = Pair(key)
        guard !outsidePairs.isEmpty, outsidePairs[pair] != nil else { return }
        outsidePairs[pair]!.remove(serial)
        let left = outsidePairs[pair]!
        if left.isEmpty || (left.count == 1 && left.last == local(key)) { outsidePairs[pair] = nil }
    }

    /// The serial of this session's value with the same name and object; nil for none.
    private func local(_ key: NotificationKey) -> UInt64? {
        serials[NotificationKey(name: key.name, object: key.object)]
    }

    /// Removes the value of a key and returns it; nil for none.
    mutating func remove(_ key: NotificationKey) -> RetainedValue? {
        guard let serial = serials.removeValue(forKey: key), let value = values.removeValue(forKey: serial) else {
            return nil
        }
        meter.count()
        removeFromOutsidePairs(key, serial)
        order.remove(serial)
        Self.remove(serial, of: ExactText(key.name), in: &names)
        Self.remove(serial, of: ExactText(key.object), in: &objects)
        if value.isWhileConnected { Self.remove(serial, of: value.notification.poster, in: &ofConnections) }
        if value.retention.goesToAllSessions { forSessions.remove(serial) }
        charge(value, -1)
        payers[value.payer.name]!.serials.remove(serial)
        if payers[value.payer.name]!.serials.isEmpty {
            payers[value.payer.name] = nil
            departed.remove(value.payer.name)
        }
        return value
    }

    /// Removes a serial from an index, and the index's entry when it is empty.
    private static func remove<Key>(_ serial: UInt64, of key: Key, in table: inout [Key: SortedSet<UInt64>]) {
        table[key]!.remove(serial)
        if table[key]!.isEmpty { table[key] = nil }
    }

    /// Returns the values that match, in the order of their serials.
    ///
    /// - Parameters:
    ///   - name: the name; nil for any.
    ///   - object: the object; nil for any.
    ///   - after: values up to this serial are skipped.
    ///   - now: ``Clock/uptime``; values that have expired by then are skipped.
    func matching(name: String?, object: String?, after: UInt64 = 0, now: Int64) -> some Sequence<RetainedValue> {
        list(name, object).all(from: after == .max ? after : after + 1).lazy.compactMap { [values, meter] serial in
            meter.count()
            let value = values[serial]!
            return value.isOver(at: now) ? nil : value
        }
    }

    /// The serials of the values with this name and object, in order. A nil name or object matches any.
    private func list(_ name: String?, _ object: String?) -> SortedSet<UInt64> {
        let list: SortedSet<UInt64>? =
            if let name, let object {
                (outsidePairs.isEmpty ? nil : outsidePairs[Pair(name, object)])
                    ?? serials[NotificationKey(name: name, object: object)].map { SortedSet(sorted: [$0]) }
            } else if let name {
                names[ExactText(name)]
            } else if let object {
                objects[ExactText(object)]
            } else {
                order
            }
        return list ?? SortedSet()
    }

    /// Returns the first value that an observer matches, with a serial greater than `after` and up to `through`; nil
    /// for none.
    ///
    /// - Parameter now: ``Clock/uptime``; values that have expired by then are skipped.
    func first(matching registration: Registration, after: UInt64, through: UInt64, now: Int64) -> RetainedValue? {
        let list = list(registration.name, registration.object)
        var next = after
        while let serial = list.first(from: next + 1), serial <= through {
            meter.count()
            let value = values[serial]!
            if !value.isOver(at: now) { return value }
            next = serial
        }
        return nil
    }

    /// The payers of all values, in no particular order.
    var allPayers: [Peer] { payers.values.map(\.peer) }

    /// The payer of a poster's values, which may have left; nil for a poster without values.
    func payer(named poster: ClientName) -> Peer? { payers[poster]?.peer }

    /// The oldest value for which a poster is charged; nil for none.
    func first(paidBy poster: ClientName) -> RetainedValue? {
        payers[poster]?.serials.first(from: 0).flatMap { values[$0] }
    }

    /// The oldest value with `while-connected` of a poster; nil for none.
    func firstOfConnection(_ poster: ClientName) -> RetainedValue? {
        ofConnections[poster]?.first(from: 0).flatMap { values[$0] }
    }

    /// The number of values with `while-connected` of a poster.
    func count(ofConnection poster: ClientName) -> Int { ofConnections[poster]?.count ?? 0 }

    /// The first value that other sessions get as well, with a serial greater than `after` and up to `through`; nil for
    /// none.
    func firstForSessions(after: UInt64, through: UInt64) -> RetainedValue? {
        guard let serial = forSessions.first(from: after + 1), serial <= through else { return nil }
        return values[serial]
    }

    /// The values from other sessions of this machine, in no particular order.
    var fromSessions: some Sequence<RetainedValue> {
        outsidePairs.lazy.flatMap(\.value).compactMap { [values] serial in
            values[serial].flatMap { $0.retention.isFromSession ? $0 : nil }
        }
    }

    /// Returns the value that expired first, without removing it; nil when none has expired. Expiries of values that no
    /// longer exist are deleted on the way.
    ///
    /// - Parameter now: ``Clock/uptime``.
    mutating func expired(at now: Int64) -> RetainedValue? {
        while let first = expiries.first, first.time <= now {
            if let value = values[first.serial] { return value }
            meter.count()
            expiries.popFirst()
        }
        return nil
    }

    /// Checks that all indexes and amounts agree with the values.
    func checkInvariants(lastSerial: UInt64) throws(BrokenInvariant) {
        try require(order.last.map { $0 <= lastSerial } ?? true, "D4: no serial is from the future")
        try require(order.elementsEqual(values.keys.sorted()), "R2: values are in their order")
        try require(
            values.allSatisfy { $0 == $1.notification.serial } && serials.count == count,
            "R1: one value of each name, object and origin")
        let values = Array(all)
        func numbers(_ list: [RetainedValue]) -> SortedSet<UInt64> {
            SortedSet(sorted: list.map(\.notification.serial))
        }
        try require(
            Dictionary(grouping: values) { ExactText($0.notification.name) }.mapValues(numbers) == names
                && Dictionary(grouping: values) { ExactText($0.notification.object) }.mapValues(numbers) == objects,
            "R2: values are found by their names, and by their objects")
        try require(
            Dictionary(grouping: values, by: \.payer.name).mapValues(numbers) == payers.mapValues(\.serials),
            "E4: values are counted for their payers")
        try require(
            Dictionary(grouping: values) { PayerOrigin($0.payer.name, $0.notification.key.origin) }
                .mapValues { Amount(count: $0.count, byteCount: $0.reduce(0) { $0 + $1.byteCount }) } == amounts,
            "R6: values are counted for their payer and origin")
        let ofMachines = values.filter { $0.notification.key.origin?.host != nil }
        try require(
            Dictionary(grouping: ofMachines, by: \.payer.name)
                .mapValues { Set($0.map { ExactText($0.notification.key.origin!.host!) }) } == machines
                && Set(payers.filter { !$1.peer.isKnown }.keys) == departed
                && Dictionary(grouping: ofMachines.filter { !$0.payer.isKnown }) {
                    ExactText($0.notification.key.origin!.host!)
                }.mapValues { Amount(count: $0.count, byteCount: $0.reduce(0) { $0 + $1.byteCount }) }
                    == departedAmounts,
            "R6: values of machines whose payers have left are counted")
        for value in values {
            try require(
                serials[value.notification.key] == value.notification.serial, "R1: a value is found by its name")
        }
        let pairs = Dictionary(grouping: values) { Pair($0.notification.key) }
            .filter { $0.value.contains { $0.notification.key.origin != nil } }
        try require(
            pairs.mapValues(numbers) == outsidePairs,
            "G3: names and objects with values from outside are indexed")
        try require(
            Dictionary(grouping: values.filter(\.isWhileConnected), by: \.notification.poster).mapValues(numbers)
                == ofConnections, "R1: values with while-connected are indexed by poster")
        try require(
            numbers(values.filter(\.retention.goesToAllSessions)) == forSessions,
            "R8: values of all sessions are indexed")
        let known = Set(expiries.unordered.map(\.serial))
        try require(
            values.allSatisfy { $0.notification.expiry == nil || known.contains($0.notification.serial) },
            "R1: values that expire are in the queue of expiries")
    }
}
