// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonMQTT

/// The values of other hosts that end with their posters (R8). Each is present while its host is online with the run
/// under which the value was published. No input and output.
///
/// An ended value is remembered: a presence message may be false or old, and the host's bridge corrects it within a
/// second.
struct BoundValues {
    /// A remembered value, as it arrived.
    struct Value {
        let message: InwardMessage
        /// Whether the session has it.
        var isHere: Bool
        /// The end of its lifetime, in microseconds since 1970; nil for never.
        let expiry: Int64?

        init(message: InwardMessage, isHere: Bool, now: Int64) {
            self.message = message
            self.isHere = isHere
            expiry = message.expiresAfter.map { now + Int64($0) * 1_000_000 }
        }

        /// Returns the message with the remaining lifetime; nil if that is over.
        func rest(at now: Int64) -> InwardMessage? {
            guard let expiry else { return message }
            return now < expiry ? message.expiring(after: UInt32(clamping: (expiry - now + 999_999) / 1_000_000)) : nil
        }
    }

    /// The maximum number of remembered values, and of their bytes. A machine may have at most seven times the free
    /// share.
    static let maxCount = 16_384
    static let maxByteCount = 16 << 20

    /// The treatment of a message.
    enum Verdict {
        case post
        /// The host is not online with the value's run.
        case wait
        /// Too many values are remembered.
        case refuse
    }

    private struct Share {
        var count = 0
        var byteCount = 0
    }

    private var values: [Origin: [ValueKind: Value]] = [:]
    /// The share of each machine, regardless of its users.
    private var shares: [String: Share] = [:]
    private var all = Share()

    /// Processes a message that sets or removes a value.
    ///
    /// - Parameters:
    ///   - host: the host of the message; nil for a host that the broker has not shown.
    ///   - now: microseconds since 1970.
    mutating func take(_ message: InwardMessage, host: HostTable.Host?, now: Int64) -> Verdict {
        // The message replaces an earlier value of any kind.
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

    /// Removes the values that meet a condition.
    ///
    /// - Returns: the messages of the removed values that the session has.
    mutating func removeAll(where isOver: (Value) -> Bool) -> [InwardMessage] {
        let over = saved.filter(isOver)
        for value in over { remove(value.message.origin, ValueKind(value.message.name, value.message.object)) }
        return over.filter(\.isHere).map(\.message)
    }

    private mutating func removeExpired(at now: Int64) { _ = removeAll { $0.rest(at: now) == nil } }

    /// Follows a change of a host.
    ///
    /// - Returns: the messages of the values that are over, and of the values that are present again, in order.
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

    /// The hosts with remembered values.
    var origins: [Origin] { values.keys.sorted { $0.text < $1.text } }

    private var saved: [Value] {
        origins.flatMap { origin in values[origin]!.sorted { $0.key < $1.key }.map(\.value) }
    }

    /// Returns all values for saving, with the remaining lifetime of each.
    func saved(at now: Int64) -> [Value] {
        saved.compactMap { value in
            value.rest(at: now).map { Value(message: $0, isHere: value.isHere, now: now) }
        }
    }

    /// Restores a value of an earlier bridge.
    mutating func restore(_ value: Value, now: Int64) {
        let message = value.message
        guard message.isKept, message.isBound, take(message, host: nil, now: now) != .refuse else { return }
        values[message.origin]?[ValueKind(message.name, message.object)]?.isHere = value.isHere
    }
}

extension InwardMessage {
    /// Whether it is a value that ends with its poster.
    fileprivate var isBound: Bool {
        if case .notification = content { properties.boundTo != nil } else { false }
    }

    /// Whether a value that ends with its poster is over, given the state of its host.
    fileprivate func isOver(with host: HostTable.Host?) -> Bool {
        host?.isOnline != true || host?.run != properties.boundTo
    }
}
