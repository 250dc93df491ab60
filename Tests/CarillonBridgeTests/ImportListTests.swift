// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonMQTT
import CarillonMainLoop
import CarillonTestLimits
import CarillonWire
import Testing

@testable import CarillonBridge

/// What the lists of the bridge let through, by every use of them.
@Suite("G2: names in the export and import lists", .limited)
struct ImportListTests {
    /// What the list `Ding;org.example.*` has, and what only looks so.
    static let inList = ["Ding", "org.example.Ding", "org.example.a.b"]
    static let notInList = [
        "Dong", "Dings", "ding", "Ding.a", "org.example", "org.exampleDing", "org.examples.Ding", "org.Example.Ding",
        "x.org.example.Ding", "org",
    ]

    /// Where a name has to be in the list `import`. A new one is one more case.
    enum Use: CaseIterable, Sendable {
        /// Whether it may come at all.
        case mayImport
        /// Whether it is subscribed to for an observer of it.
        case observed
        /// For an observer of any name.
        case observedAny
        /// Whether it is taken when the broker sends it, though an observer wants it.
        case message
        case value
        /// The same where an observer of any name is all that wants it.
        case messageForAny
        /// Where it was wanted by a configuration that had it.
        case messageOfFormerList

        func takes(_ name: String) throws -> Bool {
            let imports = try NamePattern.list("Ding;org.example.*")
            func wanted(_ names: [String], any: Bool, _ imports: [NamePattern]) -> WantedNames {
                WantedNames(observed: names, isAnyObserved: any, imports: imports, maxSubscriptions: 1000)
            }
            func isTaken(_ subject: BridgeTopic.Subject, _ wanted: WantedNames) -> Bool {
                var gate = InwardGate(realm: "home", own: Origin(host: "here", user: "u")!, imports: imports)
                gate.wanted = wanted
                let topic = BridgeTopic(subject, of: Origin(host: "there", user: "u")!).text(in: "home")
                if case .message = gate.judge(Publication(topic: topic, payload: []), now: .now) { return true }
                return false
            }
            let more = try NamePattern.list("*;org.*")
            switch self {
            case .mayImport: return WantedNames.mayImport(name, imports)
            case .observed:
                let wanted = wanted([name], any: false, imports)
                #expect(wanted.filters(in: "home").isEmpty != wanted.contains(name))
                return wanted.contains(name)
            case .observedAny: return wanted([], any: true, imports).contains(name)
            case .message: return isTaken(.notification(name: name), wanted([name], any: false, imports))
            case .value: return isTaken(.value(name: name, object: "x"), wanted([name], any: false, imports))
            case .messageForAny: return isTaken(.notification(name: name), wanted([], any: true, imports))
            case .messageOfFormerList: return isTaken(.notification(name: name), wanted([name], any: true, more))
            }
        }
    }

    @Test(
        "G2: names in the import list are accepted, and names that only resemble them are not", arguments: Use.allCases)
    func imports(use: Use) throws {
        for name in Self.inList { #expect(try use.takes(name), "\(name)") }
        for name in Self.notInList { #expect(try !use.takes(name), "\(name)") }
    }

    @Test("G2: an unwanted name is not accepted, even if the import list has it", arguments: inList)
    func unwanted(name: String) throws {
        var gate = InwardGate(
            realm: "home", own: Origin(host: "here", user: "u")!, imports: try NamePattern.list("Ding;org.example.*"))
        let topic = BridgeTopic(.notification(name: name), of: Origin(host: "there", user: "u")!).text(in: "home")
        guard case .unwanted(name) = gate.judge(Publication(topic: topic, payload: []), now: .now) else {
            Issue.record("it is taken")
            return
        }
    }

    /// An exporter without a broker, behind which everything waits.
    private func queued(_ name: String, details: [String: PropertyList], exports: String) throws -> Int {
        var configuration = BridgeConfiguration(standard: ())
        configuration.exports = try NamePattern.list(exports)
        let context = MainContext()
        let environment = BridgeEnvironment.own(address: "", context: context)
        let broker = try BrokerLink(.init(host: "127.0.0.1", port: 1, clientID: "c"), environment, context: context)
        let exporter = Exporter(configuration, environment, run: "run", broker: broker, context: context) { _, _, _ in }
        var arrived = NotificationSignal(
            name: name, object: "", userInfo: [:], observers: [], poster: ":1.7", serial: 1, sequence: 1)
        arrived.details = details
        let message = NotificationsSignal([arrived]).message(to: ":1.8").carried(from: ":1.1", serial: 1)
        for notification in try #require(try ArrivedNotification.all(in: message)) { exporter.take(notification) }
        return exporter.queuedCount
    }

    /// What the service says of a notification of this session.
    private static let local: [String: PropertyList] = ["retained": .boolean(false)]

    @Test("G2: names in the export list are published, and names that only resemble them are not")
    func exports() throws {
        for name in Self.inList {
            #expect(try queued(name, details: Self.local, exports: "Ding;org.example.*") == 1, "\(name)")
        }
        for name in Self.notInList {
            #expect(try queued(name, details: Self.local, exports: "Ding;org.example.*") == 0, "\(name)")
        }
        #expect(try queued("Ding", details: Self.local, exports: "") == 0)
        #expect(
            try queued("org.carillon.Bridge.Lost", details: Self.local, exports: "*") == 0, "what bridges say stays")
    }

    @Test(
        "G2, G3: the bridge does not publish a notification from outside, or one without details",
        arguments: [
            ["host": .string("alpha"), "user": .string("anna")], ["host": .string("alpha")], ["user": .string("anna")],
            ["user": .string("")], nil,
        ] as [[String: PropertyList]?])
    func outside(origin: [String: PropertyList]?) throws {
        let details = origin.map { Self.local.merging($0) { $1 } } ?? [:]
        #expect(try queued("Ding", details: details, exports: "Ding") == 0)
        #expect(try queued("Ding", details: details, exports: "*") == 0)
    }
}
