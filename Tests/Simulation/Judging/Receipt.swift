// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonCore
import CarillonDBus
import CarillonWire

/// What is looked at of a notification that arrived.
struct Receipt {
    let name: String
    let object: String
    /// Of its post; nil when it is none that the simulation made.
    let number: UInt64?
    let observers: [ObserverID]
    let poster: UniqueName
    let serial: UInt64
    let sequence: UInt64
    /// Where it is from, as far as its client is told (G3).
    let origin: OutsideOrigin?
    /// Whether its payload is another than posts have.
    let isAltered: Bool
    /// Whether it came in a form that tells what its client asked to be told.
    let hasDetails: Bool

    init(_ notification: ArrivedNotification) {
        var signal = NotificationSignal(
            name: notification.name, object: notification.object, userInfo: notification.userInfo.decoded(),
            observers: notification.observers, poster: notification.poster, serial: notification.serial,
            sequence: notification.sequence)
        signal.details = notification.details?.decoded() ?? [:]
        self.init(signal, hasDetails: true)
    }

    init(_ signal: NotificationSignal, hasDetails: Bool = false) {
        name = signal.name
        object = signal.object
        if case .uint64(let value)? = signal.userInfo[Ledger.numberKey] { number = value } else { number = nil }
        isAltered = signal.userInfo.contains { key, value in
            guard key != Ledger.numberKey else { return false }
            guard case .data(let bytes) = value else { return true }
            return key != "x" || bytes.contains { $0 != 7 }
        }
        observers = signal.observers
        poster = signal.poster
        serial = signal.serial
        sequence = signal.sequence
        origin = Self.origin(
            in: signal.details.compactMapValues { if case .string(let text) = $0 { text } else { nil } })
        self.hasDetails = hasDetails
    }

    /// Nil when `message` is none. Those that are laid out as the service lays them out are read where they lie; others as
    /// the library reads them.
    ///
    /// - Throws: InvalidArgs when its arguments are not those of the contract.
    init?(_ message: Message) throws(BusError) {
        guard message.isSignal(Wire.interface, NotificationSignal.member) else { return nil }
        if message.hasSignature("ssa{sv}atstt"), let receipt = message.withMarshalledBody({ Receipt(marshalled: $0) }) {
            self = receipt
        } else if let signal = try NotificationSignal(message) {
            self.init(signal)
        } else {
            return nil
        }
    }

    /// - Parameter body: of a frame of a channel, which has details at the end.
    init?(channelBody body: UnsafeRawBufferPointer) {
        self.init(marshalled: body, hasDetails: true)
    }

    private init?(marshalled body: UnsafeRawBufferPointer, hasDetails: Bool = false) {
        var reader = MarshalledReader(body)
        guard let name = reader.readString(), let object = reader.readString(),
            let (number, isAltered) = Self.readNumberAndPayload(&reader), let ids = reader.readArray(alignedTo: 8),
            ids.count % 8 == 0
        else { return nil }
        reader.move(to: ids.upperBound)
        guard let poster = reader.readString().flatMap(UniqueName.init(rawValue:)),
            let serial = Self.readUInt64(&reader), let sequence = Self.readUInt64(&reader)
        else { return nil }
        var details: [String: String] = [:]
        if hasDetails {
            guard let texts = Self.readTexts(&reader) else { return nil }
            details = texts
        }
        guard reader.isAtEnd else { return nil }
        origin = Self.origin(in: details)
        self.hasDetails = hasDetails
        self.name = name
        self.object = object
        self.number = number
        self.isAltered = isAltered
        observers = stride(from: ids.lowerBound, to: ids.upperBound, by: 8).map {
            ObserverID(rawValue: body.loadUnaligned(fromByteOffset: $0, as: UInt64.self))
        }
        self.poster = poster
        self.serial = serial
        self.sequence = sequence
    }

    /// The number of the post whose name, object and userInfo these bytes are; nil when it is none that the simulation made.
    static func number(ofCommonBody body: [UInt8]) -> Int? { content(ofCommonBody: body)?.number }

    /// The same, with whether the payload is another than posts have.
    static func content(ofCommonBody body: [UInt8]) -> (number: Int, isAltered: Bool)? {
        body.withUnsafeBytes { bytes in
            var reader = MarshalledReader(bytes)
            guard reader.readString() != nil, reader.readString() != nil else { return nil }
            return readNumberAndPayload(&reader).flatMap { content in
                Int(exactly: content.number).map { ($0, content.isAltered) }
            }
        }
    }

    private static func origin(in details: [String: String]) -> OutsideOrigin? {
        .from(host: details[Detail.host.rawValue], user: details[Detail.user.rawValue])
    }

    /// Details, of which nobody here asks for any but texts.
    private static func readTexts(_ reader: inout MarshalledReader) -> [String: String]? {
        guard let entries = reader.readArray(alignedTo: 8) else { return nil }
        var texts: [String: String] = [:]
        while reader.offset < entries.upperBound {
            guard reader.align(to: 8), let key = reader.readString(), let type = reader.readSignature(),
                type.count == 1, reader.bytes[type.lowerBound] == UInt8(ascii: "s"), let text = reader.readString()
            else { return nil }
            texts[key] = text
        }
        return reader.offset == entries.upperBound ? texts : nil
    }

    /// The number in a userInfo that has it, and besides at most payload; with whether that is another than posts have.
    private static func readNumberAndPayload(
        _ reader: inout MarshalledReader
    ) -> (number: UInt64, isAltered: Bool)? {
        var isAltered = false
        guard let entries = reader.readArray(alignedTo: 8) else { return nil }
        var number: UInt64?
        while reader.offset < entries.upperBound {
            guard reader.align(to: 8), let key = reader.readText(), let type = reader.readSignature() else {
                return nil
            }
            switch reader.bytes[type.lowerBound] {
            case UInt8(ascii: "t") where type.count == 1:
                guard key.count == 1, reader.bytes[key.lowerBound] == numberKey, let value = readUInt64(&reader) else {
                    return nil
                }
                number = value
            case UInt8(ascii: "a") where type.count == 2 && reader.bytes[type.lowerBound + 1] == UInt8(ascii: "y"):
                guard let payload = reader.readArray(alignedTo: 1) else { return nil }
                if !isAltered { isAltered = reader.bytes[payload].contains { $0 != 7 } }
                reader.move(to: payload.upperBound)
            default: return nil
            }
        }
        guard reader.offset == entries.upperBound, let number else { return nil }
        return (number, isAltered)
    }

    private static let numberKey = Ledger.numberKey.utf8.first!

    private static func readUInt64(_ reader: inout MarshalledReader) -> UInt64? {
        guard reader.skip(8) else { return nil }
        return reader.bytes.loadUnaligned(fromByteOffset: reader.offset - 8, as: UInt64.self)
    }
}
