// SPDX-License-Identifier: Apache-2.0
import CarillonCore

/// The encoding of registrations in records of the recovery log. The extension of ``RecordReader`` below decodes them.
extension RecordGroup {
    /// Appends a registration; an empty name or object stands for any.
    mutating func append(_ registration: Registration) {
        append(registration.id.rawValue)
        append(registration.name ?? "")
        append(registration.object ?? "")
        append(registration.options.suspensionBehavior.rawValue)
        append(registration.options.automaticSuspension)
        append(registration.options.runLoopMode.rawValue)
        append(registration.options.minimumInterval)
    }

    /// Appends a choice of suspension: 0 for none, 1 for false, 2 for true.
    mutating func append(optional: Bool?) {
        append(optional.map { $0 ? 2 : 1 } ?? UInt8(0))
    }
}

extension RecordReader {
    mutating func readRegistration(
        of client: ClientName, isMonitor: Bool
    ) throws(RecordReader.Malformed) -> Registration {
        let id = ObserverID(rawValue: try readUInt64())
        let name = try readText()
        let object = try readText()
        let options = ObserverOptions(
            suspensionBehavior: try readChoice(), automaticSuspension: try readBool(),
            runLoopMode: try readChoice(), isMonitor: isMonitor,
            // Records of an earlier version of the service end here.
            minimumInterval: isAtEnd ? 0 : try readUInt32())
        return Registration(
            id: id, client: client, name: name.isEmpty ? nil : name, object: object.isEmpty ? nil : object,
            options: options)
    }

    mutating func readObservers() throws(RecordReader.Malformed) -> [ObserverID] {
        try readNumbers(ObserverID.init(rawValue:))
    }

    /// Reads a choice of suspension; nil for none.
    mutating func readOptionalBool() throws(RecordReader.Malformed) -> Bool? {
        switch try readUInt8() {
        case 0: return nil
        case 1: return false
        case 2: return true
        default: throw RecordReader.Malformed()
        }
    }

    mutating func readLane() throws(RecordReader.Malformed) -> DeliveryLane {
        guard let lane = DeliveryLane(rawValue: Int(try readUInt8())) else { throw RecordReader.Malformed() }
        return lane
    }
}

/// A cache of the client names that were read from a log. A log has thousands of records of one client, so each name is
/// checked and allocated only once.
struct NameCache {
    /// The bytes of a name, padded with zeros.
    private struct Key: Hashable {
        let count: Int
        var words: (UInt64, UInt64) = (0, 0)

        /// - Parameter bytes: the name, with at most ``most`` bytes.
        init(_ bytes: UnsafeRawBufferPointer) {
            count = bytes.count
            withUnsafeMutableBytes(of: &words) { $0.copyMemory(from: bytes) }
        }

        /// The maximum length of a name that is cached, in bytes. Longer names are rare.
        static let most = 16

        static func == (left: Key, right: Key) -> Bool { left.count == right.count && left.words == right.words }

        func hash(into hasher: inout Hasher) {
            hasher.combine(words.0)
            hasher.combine(words.1)
        }
    }

    private var names: [Key: ClientName] = [:]

    /// Reads a client name, from the cache if it is there.
    mutating func read(_ reader: inout RecordReader) throws(RecordReader.Malformed) -> ClientName {
        var copy = reader
        let bytes = try reader.readBytes()
        guard bytes.count <= Key.most else { return try Self.make(&copy) }
        let key = Key(bytes)
        if let name = names[key] { return name }
        let name = try Self.make(&copy)
        names[key] = name
        return name
    }

    /// Reads a client name without the cache.
    private static func make(_ reader: inout RecordReader) throws(RecordReader.Malformed) -> ClientName {
        guard let name = ClientName(rawValue: try reader.readText()) else { throw RecordReader.Malformed() }
        return name
    }
}
