// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonMQTT

/// The values of other hosts that go with their posters (R8): each is there while its host is online with the run that it was
/// published under. No input and output.
///
/// A value that is over is remembered: what is said of a host may be false, or old, and its bridge corrects it within a second.
struct BoundValues {
    /// One of them, as it arrived.
    struct Value {
        let message: InwardMessage
        /// Whether the session has it.
        var isHere: Bool
        /// When its time is over, in microseconds since 1970; nil for never.
        let expiry: Int64?

        init(message: InwardMessage, isHere: Bool, now: Int64) {
            self.message = message
            self.isHere = isHere
            expiry = message.expiresAfter.map { now + Int64($0) * 1_000_000 }
        }

        /// The same with the time that is left; nil where that is over.
        func rest(at now: Int64) -> InwardMessage? {
            guard let expiry else { return message }
            return now < expiry ? message.expiring(after: UInt32(clamping: (expiry - now + 999_999) / 1_000_000)) : nil
        }
    }

    /// The maximum of values that are remembered, and of their bytes. A host has seven times what is left to others at most.
    static let maxCount = 16_384
    static let maxByteCount = 16 << 20

    /// The treatment of a message.
    enum Verdict {
        case post
        /// Its host is not there.
        case wait
        /// Too many of them are remembered.
        case refuse
    }

    private struct Share {
        var count = 0
        var byteCount = 0
    }

    private var values: [Origin: [ValueKind: Value]] = [:]
    /// Of each machine, whoever its user is.
    private var shares: [String: Share] = [:]
    private var all = Share()

    /// Takes a message of a value, or that it is gone.
    ///
    /// - Parameters:
    ///   - host: the host that it is from; nil for one that the broker has not shown.
    ///   - now: in microseconds since 1970.
    mutating func take(_ message: InwardMessage, host: HostTable.Host?, now: Int64) -> Verdict {
        // It takes the place of an earlier one, of any kind.
        guard message.isKept else { return .post }
        let kind = ValueKind(message.name, message.object)
        remove(message.origin, kind)
        guard message.isBound else { return .post }
        if !hasRoom(for: message) { removeExpired(at: now) }
        guard hasRoom(for: message) else { return .refuse }
        let isHere = !message.isOver(with: host)
        values[message.origin, default: [:]][kind] = Value(message: message, isHere: isHere, now: now)
        charge(message, 1)
        return isHere ? .post : .wait
    }

    private func hasRoom(for message: InwardMessage) -> Bool {
        let own = shares[message.origin.host] ?? Share()
        return all.count < Self.maxCount && own.count + 1 <= 7 * (Self.maxCount - all.count)
            && own.byteCount + message.byteCount <= 7 * (Self.maxByteCount - all.byteCount - message.byteCount)
    }

    private mutating func charge(_ message: InwardMessage, _ sign: Int) {
        var own = shares[message.origin.host] ?? Share()
        for share in [\Share.count: sign, \Share.byteCount: sign * message.byteCount] {
            own[keyPath: share.key] += share.value
            all[keyPath: share.key] += share.value
        }
        shares[message.origin.host] = own.count == 0 ? nil : own
    }

    private mutating func remove(_ origin: Origin, _ kind: ValueKind) {
        guard let value = values[origin]?.removeValue(forKey: kind) else { return }
        charge(value.message, -1)
        if values[origin]?.isEmpty == true { values[origin] = nil }
    }

    /// Takes out values of which a condition holds.
    ///
    /// - Returns: the messages of those that the session has.
    mutating func removeAll(where isOver: (Value) -> Bool) -> [InwardMessage] {
        let over = saved.filter(isOver)
        for value in over { remove(value.message.origin, ValueKind(value.message.name, value.message.object)) }
        return over.filter(\.isHere).map(\.message)
    }

    private mutating func removeExpired(at now: Int64) { _ = removeAll { $0.rest(at: now) == nil } }

    /// Something is new about a host.
    ///
    /// - Returns: the messages of the values that are over, and of those that are there again, in order.
    mutating func follow(
        _ origin: Origin, _ host: HostTable.Host?, now: Int64
    ) -> (over: [InwardMessage], again: [InwardMessage]) {
        var result: (over: [InwardMessage], again: [InwardMessage]) = ([], [])
        guard let known = values[origin] else { return result }
        #if CARILLON_PLANTED
            if PlantedFault.strikes(.presenceStays), host?.isOnline != true { return result }
        #endif
        for (kind, value) in known.sorted(by: { $0.key < $1.key }) {
            guard let message = value.rest(at: now) else {
                remove(origin, kind)
                continue
            }
            let isOver = message.isOver(with: host)
            guard isOver == value.isHere else { continue }
            values[origin]![kind]!.isHere = !isOver
            if isOver { result.over.append(message) } else { result.again.append(message) }
        }
        return result
    }

    /// The hosts of which there are some.
    var origins: [Origin] { values.keys.sorted { $0.text < $1.text } }

    private var saved: [Value] {
        origins.flatMap { origin in values[origin]!.sorted { $0.key < $1.key }.map(\.value) }
    }

    /// All of them, with the time that each has left, to be saved.
    func saved(at now: Int64) -> [Value] {
        saved.compactMap { value in
            value.rest(at: now).map { Value(message: $0, isHere: value.isHere, now: now) }
        }
    }

    /// Takes a value that an earlier bridge knew.
    mutating func restore(_ value: Value, now: Int64) {
        let message = value.message
        guard message.isKept, message.isBound, take(message, host: nil, now: now) != .refuse else { return }
        values[message.origin]?[ValueKind(message.name, message.object)]?.isHere = value.isHere
    }
}

extension InwardMessage {
    /// Whether it is a value that goes with its poster.
    fileprivate var isBound: Bool {
        if case .notification = content { properties.boundTo != nil } else { false }
    }

    /// Whether a value that goes with its poster is over.
    fileprivate func isOver(with host: HostTable.Host?) -> Bool {
        host?.isOnline != true || host?.run != properties.boundTo
    }
}
