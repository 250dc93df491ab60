import DBus
import NotificationCore

extension PostOptions {
    /// The options of a post where they lie: what clients send who make no mistake.
    ///
    /// - Parameters:
    ///   - entries: where the entries of the `a{sv}` stand in the arguments.
    ///   - arguments: of the call.
    /// - Returns: nil for all others, of which `init(from:)` knows what is wrong with them.
    init?(at entries: Range<Int>, of arguments: MarshalledReader) {
        self.init()
        var reader = arguments
        reader.move(to: entries.lowerBound)
        while reader.offset < entries.upperBound {
            guard reader.align(to: 8), let key = reader.readString(), let type = reader.readSignature() else {
                return nil
            }
            let isRead =
                switch key {
                case "deliver-immediately": readImmediately(&reader, type)
                case "posting-style": readStyle(&reader, type)
                case "coalesce-on": readCoalescing(&reader, type)
                default: false
                }
            guard isRead else { return nil }
        }
        guard reader.offset == entries.upperBound else { return nil }
    }

    private mutating func readImmediately(_ reader: inout MarshalledReader, _ type: Range<Int>) -> Bool {
        guard reader.holds("b", at: type), let value = reader.readUInt32(), value <= 1 else { return false }
        deliverImmediately = value == 1
        return true
    }

    private mutating func readStyle(_ reader: inout MarshalledReader, _ type: Range<Int>) -> Bool {
        guard reader.holds("s", at: type), let style = reader.readString().flatMap(PostingStyle.init) else {
            return false
        }
        postingStyle = style
        return true
    }

    private mutating func readCoalescing(_ reader: inout MarshalledReader, _ type: Range<Int>) -> Bool {
        guard reader.holds("as", at: type), let texts = reader.readArray(alignedTo: 4) else { return false }
        coalescing = []
        while reader.offset < texts.upperBound {
            guard let key = reader.readString().flatMap(CoalescingKey.init) else { return false }
            coalescing.insert(key)
        }
        return reader.offset == texts.upperBound
    }
}

extension MarshalledReader {
    fileprivate func holds(_ text: StaticString, at place: Range<Int>) -> Bool {
        text.withUTF8Buffer { bytes[place].elementsEqual($0) }
    }
}
