// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonTestLimits
import CarillonTestSupport
import CarillonWire
import Testing

@testable import CarillonDBus

/// Notifications read where they lie (F3), held against what libdbus reads.
@Suite("F3: notifications read in place", .limited)
struct ArrivedNotificationTests {
    private static let samples: [NotificationSignal] = [
        NotificationSignal(
            name: "Ding", object: "", userInfo: ["a": .array([.int64(1)]), "b": .string("größe")],
            observers: [ObserverID(rawValue: 1), ObserverID(rawValue: .max)], poster: ":1.7", serial: 5, sequence: 2),
        NotificationSignal(
            name: "Größe", object: "Glocke", userInfo: [:], observers: [], poster: ":1.4711", serial: .max,
            sequence: .max),
        NotificationSignal(
            name: "x", object: "y", userInfo: ["data": .data([1, 2, 3]), "d": .dictionary(["k": .uint8(1)])],
            observers: [ObserverID(rawValue: 7)], poster: ":1.8", serial: 6, sequence: 3),
    ]

    private func same(_ arrived: ArrivedNotification, _ signal: NotificationSignal) -> Bool {
        signal
            == NotificationSignal(
                name: arrived.name, object: arrived.object, userInfo: arrived.userInfo.decoded(),
                observers: arrived.observers, poster: arrived.poster, serial: arrived.serial,
                sequence: arrived.sequence)
    }

    @Test("Notifications, alone and in a batch, are read in place as libdbus reads them, in order")
    func roundTrip() throws {
        for sample in Self.samples {
            let all = try #require(try ArrivedNotification.all(in: sample.message(to: ":1.1")))
            #expect(all.count == 1 && same(all[0], sample))
        }
        for count in 0...Self.samples.count {
            let together = NotificationsSignal(Array(Self.samples[..<count]))
            let all = try #require(try ArrivedNotification.all(in: together.message(to: ":1.1")))
            #expect(all.count == count && zip(all, Self.samples).allSatisfy(same))
        }
    }

    @Test("Reuse of equal parts of the previous notification does not change the result of reading")
    func recent() throws {
        var recent = ArrivedNotification.Recent()
        // Alike in all but one thing, in which they differ also by a beginning and in length.
        let variants = ["Ding", "Dong", "Din", "Dinge", "", "Größe", "Groesse"].flatMap { text in
            [
                NotificationSignal(
                    name: text, object: "o", userInfo: [:], observers: [], poster: ":1.7", serial: 5, sequence: 2),
                NotificationSignal(
                    name: "n", object: text, userInfo: [:], observers: [], poster: ":1.7", serial: 5, sequence: 2),
                NotificationSignal(
                    name: "n", object: "o", userInfo: [:],
                    observers: text.utf8.map { ObserverID(rawValue: UInt64($0)) },
                    poster: text.count > 3 ? ":1.7" : ":1.70", serial: 5, sequence: 2),
            ]
        }
        var random = SplitMix.ofTest("ArrivedNotificationTests.recent")
        for _ in 0..<200 {
            let signal = variants.randomElement(using: &random)!
            let all = try #require(try ArrivedNotification.all(in: signal.message(to: ":1.1"), like: &recent))
            #expect(all.count == 1 && same(all[0], signal))
        }
        // What is no text is none, however much it is like the last.
        let message = Self.samples[0].message(to: ":1.1")
        _ = try ArrivedNotification.all(in: message, like: &recent)
        let body = message.marshalledBody
        for place in body.indices {
            var changed = body
            changed[place] ^= 0x80
            var other = recent
            let again = changed.withUnsafeBytes { bytes -> Bool in
                var reader = MarshalledReader(bytes)
                return (try? ArrivedNotification(at: &reader, like: &other)) != nil
            }
            let first = changed.withUnsafeBytes { bytes -> Bool in
                var (reader, none) = (MarshalledReader(bytes), ArrivedNotification.Recent())
                return (try? ArrivedNotification(at: &reader, like: &none)) != nil
            }
            #expect(again == first, "byte \(place)")
        }
    }

    @Test("P1: each notification carries the details that the client requested, or none")
    func details() throws {
        let message = Wire.signal(NotificationsSignal.member, to: ":1.1")
        var writer = MessageWriter(message)
        writer.array(of: "(ssa{sv}atstta{sv})") { writer in
            for (place, sample) in Self.samples.enumerated() {
                writer.structure { writer in
                    sample.append(to: &writer)
                    writer.array(of: "{sv}") { writer in
                        guard place != 1 else { return }
                        writer.entry("uid", UInt32(1000))
                        writer.entry("process", "bell")
                    }
                }
            }
        }
        let all = try #require(try ArrivedNotification.all(in: message))
        #expect(all.count == 3 && zip(all, Self.samples).allSatisfy(same))
        let details: [String: PropertyList] = ["uid": .uint32(1000), "process": .string("bell")]
        #expect(all.map { $0.details?.decoded() } == [details, nil, details])
    }

    @Test("Other signals are no notifications; wrong argument types or an invalid poster are an error")
    func others() throws {
        #expect(try ArrivedNotification.all(in: Wire.signal("Dropped", to: ":1.1")) == nil)
        let foreign = Message.signal(path: Wire.path, interface: "org.example.Bell", member: "Notification")
        #expect(try ArrivedNotification.all(in: foreign) == nil)
        for member in [NotificationSignal.member, NotificationsSignal.member] {
            let wrong = Wire.signal(member, to: ":1.1")
            #expect(throws: BusError.self) { try ArrivedNotification.all(in: wrong) }
            var writer = MessageWriter(wrong)
            writer.append("Ding")
            #expect(throws: BusError.self) { try ArrivedNotification.all(in: wrong) }
        }
        var stranger = Self.samples[0]
        stranger.poster = .init(unchecked: "nobody")
        #expect(throws: BusError.self) { try ArrivedNotification.all(in: stranger.message(to: ":1.1")) }
    }

    @Test("A userInfo that is no property list is refused on arrival, not at the first access")
    func checkedOnArrival() throws {
        let message = Wire.signal(NotificationSignal.member, to: ":1.1")
        var writer = MessageWriter(message)
        writer.append("Ding")
        writer.append("")
        writer.array(of: "{sv}") { $0.entry("path", ObjectPath("/")) }
        writer.append(fixedArray: [UInt64(1)])
        writer.append(":1.7")
        writer.append(UInt64(1))
        writer.append(UInt64(1))
        #expect(throws: BusError.self) { try ArrivedNotification.all(in: message) }
    }

    @Test("E2: damaged notification bytes are read or refused, and truncated ones are refused")
    func damaged() throws {
        for message in [Self.samples[0].message(to: ":1.1"), NotificationsSignal(Self.samples).message(to: ":1.1")] {
            _ = message.numbered { 1 }
            let whole = message.withMarshalledBytes { Array($0) }
            let start = whole.count - message.marshalledBody.count
            let (first, rest) = (whole[..<start], whole[start...])
            var (read, refused) = (0, 0)
            for place in rest.indices {
                for value in [0, 1, 0x7F, 0xFF] as [UInt8] {
                    var bytes = whole
                    bytes[place] = value
                    guard let arrived = Message(arrived: bytes) else { continue }
                    do {
                        for notification in try ArrivedNotification.all(in: arrived) ?? [] {
                            _ = notification.userInfo.decoded()
                        }
                        read += 1
                    } catch {
                        refused += 1
                    }
                }
            }
            #expect(read > 0 && refused > 0)
            for count in 0..<rest.count {
                var head = Array(first)
                withUnsafeBytes(of: UInt32(count)) { head.replaceSubrange(4..<8, with: $0) }
                guard let arrived = Message(arrived: head + rest.prefix(count)) else { continue }
                #expect(throws: BusError.self, "\(count)") { try ArrivedNotification.all(in: arrived) }
            }
        }
    }
}
