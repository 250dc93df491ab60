// SPDX-License-Identifier: Apache-2.0
import MQTT

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
    }

    /// The maximum of values that are remembered, and of their bytes.
    static let maxCount = 16_384
    static let maxByteCount = 16 << 20

    /// What to do with a message.
    enum Verdict {
        case post
        /// Its host is not there.
        case wait
        /// Too many of them are remembered.
        case refuse
    }

    private var values: [Origin: [ValueKind: Value]] = [:]
    private var count = 0
    private var byteCount = 0

    /// Takes a message of a value, or that it is gone.
    ///
    /// - Parameter host: the host that it is from; nil for one that the broker has not shown.
    mutating func take(_ message: InwardMessage, host: HostTable.Host?) -> Verdict {
        let kind = ValueKind(message.name, message.object)
        // Whatever was there before, this takes its place.
        guard message.isKept else { return .post }
        remove(message.origin, kind)
        guard message.properties.boundTo != nil, case .notification = message.content else { return .post }
        guard count < Self.maxCount, byteCount + message.byteCount <= Self.maxByteCount else { return .refuse }
        let isHere = message.isOver(with: host) == false
        values[message.origin, default: [:]][kind] = Value(message: message, isHere: isHere)
        count += 1
        byteCount += message.byteCount
        return isHere ? .post : .wait
    }

    private mutating func remove(_ origin: Origin, _ kind: ValueKind) {
        guard let value = values[origin]?.removeValue(forKey: kind) else { return }
        count -= 1
        byteCount -= value.message.byteCount
        if values[origin]?.isEmpty == true { values[origin] = nil }
    }

    /// Something is new about a host.
    ///
    /// - Returns: the messages of the values that are over, and of those that are there again, in order.
    mutating func follow(_ origin: Origin, _ host: HostTable.Host?) -> (over: [InwardMessage], again: [InwardMessage]) {
        var result: (over: [InwardMessage], again: [InwardMessage]) = ([], [])
        guard let known = values[origin] else { return result }
        for (kind, value) in known.sorted(by: { $0.key < $1.key }) {
            let isOver = value.message.isOver(with: host)
            guard isOver == value.isHere else { continue }
            values[origin]![kind]!.isHere = !isOver
            if isOver { result.over.append(value.message) } else { result.again.append(value.message) }
        }
        return result
    }

    /// All of them, to be saved.
    var all: [Value] {
        values.sorted { $0.key.text < $1.key.text }.flatMap { _, values in
            values.sorted { $0.key < $1.key }.map(\.value)
        }
    }

    /// Takes a value that an earlier bridge knew.
    mutating func restore(_ value: Value) {
        guard case .notification = value.message.content, value.message.properties.boundTo != nil,
            take(value.message, host: nil) != .refuse
        else { return }
        values[value.message.origin]![ValueKind(value.message.name, value.message.object)]!.isHere = value.isHere
    }
}

extension InwardMessage {
    /// Whether a value that goes with its poster is over.
    fileprivate func isOver(with host: HostTable.Host?) -> Bool {
        host?.isOnline != true || host?.run != properties.boundTo
    }
}
