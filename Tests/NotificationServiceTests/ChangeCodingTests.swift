// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonTestLimits
import CarillonWire
import Testing

@testable import CarillonService

/// What an earlier version left has to be read (E3), so every record is held against the bytes that it has always had:
/// another layout would be written and read by the same code, and nothing else would notice.
@Suite("E3: encoding of records in the recovery log", .limited)
struct ChangeCodingTests: StateTests {
    private static let identity = Identity(
        userID: 1000, processID: 77, process: "p", application: "org.a", sandbox: "", unit: "u.service")

    /// The records that an encoder makes of a change, in hexadecimal, each in a row.
    private func records(_ encoder: inout ChangeEncoder, _ change: Change) -> [String] {
        var group = RecordGroup()
        encoder.encode(change, slot: { _ in 5 }, to: &group)
        return rows(group)
    }

    private func rows(_ group: borrowing RecordGroup) -> [String] {
        var rows: [String] = []
        group.withBytes { bytes in
            _ = RecordGroup.read(bytes) { record in
                rows.append(record.map { String($0 >> 4, radix: 16) + String($0 & 15, radix: 16) }.joined())
                return true
            }
        }
        return rows
    }

    private func changes() throws -> [Change] {
        let one: ClientName = ":1.1"
        let ids = [1, 2, 3, 4].map { ObserverID(rawValue: $0) }
        let origin = try OutsideOrigin(host: "h", user: nil)
        let userInfo = try userInfo("N")
        func notification(
            _ serial: UInt64, _ identity: Identity? = nil, retention: Retention? = nil, forAll: Bool = false
        ) -> Notification {
            Notification(
                name: "N", object: "", userInfo: userInfo, poster: ":1.9", identity: identity, time: 6,
                expiry: retention == nil ? nil : 7, retention: retention, goesToAllSessions: forAll, serial: serial)
        }
        var options = ClientOptions()
        options.batches = true
        options.details = [.host, .time]
        var post = PendingPost(
            name: "N", object: "", userInfo: userInfo, deliverImmediately: true, style: .whenIdle,
            identity: Self.identity)
        var full = post
        (full.retention, full.expiry, full.secondsAfterExit) = (Retention(whileConnected: true), 8, 9)
        (full.goesToAllSessions, full.identity) = (true, Self.identity.withOrigin(try #require(origin)))
        post.style = .asap
        let observer = ObserverOptions(
            suspensionBehavior: .hold, automaticSuspension: false, runLoopMode: .modalPanel, minimumInterval: 10)
        let monitor = ObserverOptions(isMonitor: true)
        let kind = NotificationKey(name: "N", object: "o")
        let broughtKind = NotificationKey(name: "N", object: "o", origin: origin)
        return [
            .client(one, ClientCounts(sequence: 3, delivered: 2, dropped: 1)),
            .observer(Registration(id: ids[0], client: one, name: "N", object: nil, options: observer)),
            .observer(Registration(id: ids[1], client: one, name: nil, object: "o", options: monitor)),
            .observersRemoved(one, [ids[1]]), .observersRevoked(one, [ids[0]]), .revocationsKnown(one),
            .suspension(one, nil), .suspension(one, false), .suspensionOverridden(one, true),
            .options(one, options), .suspendedByActivity(one, true), .suspensionNoticePending(one, false),
            .interestFollowed(one), .valuesFollowed(one),
            .queuedDue(one, notification(1), observers: [ids[0]], .standard),
            .queuedDue(one, notification(2, Self.identity), observers: ids, .immediate),
            // Neither the notification nor the list is written again.
            .queuedDue(":1.2", notification(2, Self.identity), observers: ids, .flushed),
            .queuedDue(one, notification(2, Self.identity), observers: ids, .flushed),
            .held(one, notification(3, full.identity), observers: [ids[0]], coalescing: [ids[0]]),
            .held(one, notification(4, retention: Retention()), observers: [ids[0]], coalescing: [ids[1]]),
            .throttled(one, notification(4, retention: Retention()), observers: [ids[0]]),
            .throttled(one, notification(6, forAll: true), observers: [ids[0]]),
            .throttleEnded(one, kind, observers: [ids[0]]), .throttleEnded(one, broughtKind, observers: []),
            .flushed(one), .popped(one, .eventTracking), .lost(one, .queueFull),
            .unreportedLoss(one, count: 4, observers: [ids[2]], .overload), .lossAnnounced(one),
            .retained(notification(5, retention: Retention(whileConnected: true)), Retention(whileConnected: true)),
            .unretained(one, kind), .unretained(one, broughtKind),
            .replays(one, RetainedReplay(observer: ids[0], after: 1, through: 4, isHeld: true)),
            .postQueued(one, post, coalescing: [.name]), .postQueued(one, full, coalescing: [.name, .object]),
            .postsReplaced(one, name: "N", object: "", coalescing: [.object]),
            .postsWithdrawn(one, name: "N", object: "o"), .postTaken(one, .asap), .clientGone(one),
            .excess(.queuedPostBytes, Excess(amount: 300, limit: 128)),
        ]
    }

    /// In the order of ``changes()``, a notification before the first record that speaks of it; at last the records that are
    /// no changes. Bytes of a userInfo are in the order of this machine, as every one that there is a test for has it.
    private static let expected = """
        02040000003a312e3105000000030000000000000002000000000000000100000000000000
        04040000003a312e310100000000000000010000004e0000000004000000686f6c64000b0000006d6f64616c2d70\
        616e656c0a000000
        17040000003a312e31020000000000000000000000010000006f08000000636f616c657363650107000000646566\
        61756c7400000000
        05040000003a312e31010000000200000000000000
        21040000003a312e31010000000100000000000000
        22040000003a312e31
        06040000003a312e3100
        06040000003a312e3101
        1e040000003a312e3102
        16040000003a312e310120010000
        11040000003a312e3101
        14040000003a312e3100
        1f040000003a312e31
        20040000003a312e31
        010100000000000000040000003a312e392e000000010000004e0000000000000000000000160000000000000003\
        0000006b657900017300000500000076616c7565000600000000000000000000000000000000
        07040000003a312e3101000000000000000001000000010000000000000004
        010200000000000000040000003a312e392e000000010000004e0000000000000000000000160000000000000003\
        0000006b657900017300000500000076616c75650006000000000000000101e8030000014d000000010000007005\
        0000006f72672e610000000009000000752e736572766963650000000000000000
        07040000003a312e3102000000000000000004000000010000000000000002000000000000000300000000000000\
        040000000000000001
        07040000003a312e3202000000000000000004000000010000000000000002000000000000000300000000000000\
        040000000000000000
        07040000003a312e3102000000000000000100
        010300000000000000040000003a312e392e000000010000004e0000000000000000000000160000000000000003\
        0000006b657900017300000500000076616c75650006000000000000000101e8030000014d000000010000007005\
        0000006f72672e610000000009000000752e73657276696365000000000000000001000000680000000000
        08040000003a312e3103000000000000000001000000010000000000000002
        010400000000000000040000003a312e392e000000010000004e0000000000000000000000160000000000000003\
        0000006b657900017300000500000076616c75650006000000000000000007000000000000000000000000000000\
        01
        08040000003a312e3104000000000000000001000000010000000000000000010000000200000000000000
        1c040000003a312e31040000000000000000010000000100000000000000
        010600000000000000040000003a312e392e000000010000004e0000000000000000000000160000000000000003\
        0000006b657900017300000500000076616c75650006000000000000000000000000000000000000000000000000\
        0001
        1c040000003a312e31060000000000000000010000000100000000000000
        1d040000003a312e31010000004e010000006f00010000000100000000000000
        1d040000003a312e31010000004e010000006f0000000000010000006800000000
        09040000003a312e31
        0a040000003a312e3102
        0b040000003a312e310a00000071756575652d66756c6c
        0c040000003a312e310400000000000000010000000300000000000000080000006f7665726c6f6164
        0d040000003a312e31
        010500000000000000040000003a312e392e000000010000004e0000000000000000000000160000000000000003\
        0000006b657900017300000500000076616c75650006000000000000000007000000000000000000000000000000\
        02
        18040000003a312e39050000000000000001
        19040000003a312e31010000004e010000006f
        19040000003a312e31010000004e010000006f010000006800000000
        1a040000003a312e3101000000000000000100000000000000040000000000000001
        0e040000003a312e312e000000010000004e00000000000000000000001600000000000000030000006b65790001\
        7300000500000076616c75650001040000006173617001000101e8030000014d0000000100000070050000006f72\
        672e610000000009000000752e736572766963650000000000000000000000000000
        0e040000003a312e312e000000010000004e00000000000000000000001600000000000000030000006b65790001\
        7300000500000076616c75650001090000007768656e2d69646c6501010101e8030000014d000000010000007005\
        0000006f72672e610000000009000000752e73657276696365080000000000000002090000000101000000680000\
        0000
        0f040000003a312e31010000004e000000000001
        1b040000003a312e31010000004e010000006f
        10040000003a312e310400000061736170
        03040000003a312e31
        23110000007175657565642d706f73742d62797465732c010000000000008000000000000000
        1201000000000000000200000000000000
        13
        150c000000756e69783a706174683d2f62
        """.split(separator: "\n").map(String.init)

    @Test("Every change is encoded in exactly the bytes of earlier versions")
    func bytes() throws {
        var encoder = ChangeEncoder()
        var rows = try changes().flatMap { records(&encoder, $0) }
        var group = RecordGroup()
        encoder.numbers(serial: 1, observer: 2, to: &group)
        encoder.queuesUnkept(to: &group)
        encoder.bus(address: "unix:path=/b", to: &group)
        rows += self.rows(group)
        #expect(rows == Self.expected)
    }
}
