// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonCollections
import CarillonCore
import CarillonTestLimits
import CarillonWire
import Testing

@testable import CarillonService

/// A container that keeps memory for more than it has.
private protocol Roomy {
    var capacity: Int { get }
    var count: Int { get }
}
extension Array: Roomy {}
extension ContiguousArray: Roomy {}
extension Dictionary: Roomy {}
extension Set: Roomy {}
extension Deque: Roomy {}

/// All containers of an object and of what it refers to.
private struct Containers {
    private(set) var all: [(path: String, capacity: Int, count: Int)] = []
    private var seen: Set<ObjectIdentifier> = []
    private static let maxElements = 64

    init(of object: AnyObject) { walk(object, "", depth: 0) }

    private mutating func walk(_ value: Any, _ path: String, depth: Int) {
        let mirror = Mirror(reflecting: value)
        if mirror.displayStyle == .class, !seen.insert(ObjectIdentifier(value as AnyObject)).inserted { return }
        if let roomy = value as? any Roomy { all.append((path, roomy.capacity, roomy.count)) }
        guard depth < 32 else { return }
        var next: Mirror? = mirror
        while let one = next {
            for child in one.children.prefix(Self.maxElements) {
                walk(child.value, child.label.map { "\(path).\($0)" } ?? path, depth: depth + 1)
            }
            next = one.superclassMirror
        }
    }

    /// Those that have room for much more than there is in them.
    var tooLarge: [String] {
        all.filter { $0.capacity > 4 * $0.count + 256 }.map { "\($0.path): \($0.count) of \($0.capacity)" }
    }
}

/// Tables of the core and the service behind many clients that have used everything, and have left.
@Suite("E4, E8: capacity of tables after removals", .limited)
struct RoomOfTablesTests {
    private let stage: ServiceStage

    init() throws {
        stage = try ServiceStage {
            $0.suspendsAutomatically = true
            $0.policy.openNames = [.exactly("Open")]
        }
    }

    private func use(by clients: [StageClient]) throws {
        for (number, client) in clients.enumerated() {
            var coalesced = ObserverOptions()
            coalesced.suspensionBehavior = .coalesce
            var withInterval = ObserverOptions()
            withInterval.minimumInterval = 60_000
            var withValues = ObserverOptions()
            withValues.wantsRetained = true
            client.send(AddObserver(name: "Open", object: "", options: coalesced).message())
            client.send(AddObserver(name: "Open", object: "", options: withInterval).message())
            client.send(AddObserver(name: "Name\(number)", object: "", options: withValues).message())
            client.send(AddObserver(name: "", object: "Object\(number)").message())
            client.send(AddObserver(name: "Open", object: "Object\(number)", options: withInterval).message())
            client.send(FollowInterest().message())
            client.send(FollowActivity().message())
            client.send(Explain(client.name.rawValue, name: "Name\(number)").message())
            for style in [PostingStyle.now, .asap, .whenIdle, .atExit] {
                var options = PostOptions()
                options.postingStyle = style
                if style != .now { options.coalescing = [.name] }
                if style == .now || style == .atExit { options.retention = Retention(whileConnected: number % 2 == 0) }
                options.expiresAfter = number % 3 == 0 ? 1 : nil
                client.send(try PostCall(name: "Name\(number)", object: "Object\(number)", options: options).message())
                client.send(try PostCall(name: "Open", object: "Object\(number)", options: options).message())
            }
            if number % 4 == 0 { client.send(SetSuspended(true).message()) }
            if number % 4 == 1 { client.reads = false }
            if number % 4 == 2 { try client.openChannel() }
        }
        stage.pass(milliseconds: 3000)
    }

    private func join(_ count: Int) -> [StageClient] {
        (0..<count).map { number in
            var process = ServiceStage.Process()
            if number % 3 == 0 { process.confinement = .sandbox("org.example.App\(number)") }
            if number % 3 == 1 { process.unit = "app-org.example.App\(number)-1.scope" }
            process.userID = UInt32(1000 + number % 5)
            return stage.join(process)
        }
    }

    /// The containers of the service that are too large.
    private var tooLarge: [String] {
        Containers(of: stage.service).tooLarge.filter { !$0.hasPrefix(".machine.processes.stage.") }
    }

    @Test("No table keeps excess capacity after all clients but one have left")
    func left() throws {
        let staying = stage.join()
        try staying.observe("Stays")
        let clients = join(400)
        try use(by: clients)
        let most = Containers(of: stage.service)
        #expect(most.all.filter { $0.count >= 256 }.count > 20, "it is a load")
        stage.configure { $0.policy.openNames = [] }
        stage.pass(milliseconds: 100)
        for client in clients { stage.leave(client) }
        stage.pass(milliseconds: 120_000)
        #expect(stage.service.center?.statistics.clients == 1)
        #expect(tooLarge == [])
        #expect(try staying.post("Stays") == 1)
    }

    @Test("No table keeps excess capacity after a client has removed all of its state")
    func emptied() throws {
        let client = stage.join()
        var options = ObserverOptions()
        (options.wantsRetained, options.suspensionBehavior) = (true, .hold)
        var interval = ObserverOptions()
        (interval.minimumInterval, interval.suspensionBehavior) = (60_000, .coalesce)
        var ids: [ObserverID] = []
        for style in [PostingStyle.now, .asap, .whenIdle, .atExit] {
            var options = PostOptions()
            options.postingStyle = style
            if style == .now { options.retention = Retention() } else { options.coalescing = [.name, .object] }
            for number in 0..<600 {
                client.send(try PostCall(name: "N\(number)", object: "O\(number)", options: options).message())
            }
        }
        try client.call(SetSuspended(true))
        for number in 0..<600 {
            ids.append(try client.observe("N\(number)", options: options))
            ids.append(try client.observe("N\(number)", "O\(number)", options: interval))
        }
        for _ in 0..<2 {
            for number in 0..<600 { try client.post("N\(number)", "O\(number)") }
        }
        try client.call(FollowInterest())
        #expect(Containers(of: stage.service).all.filter { $0.count >= 512 }.count > 10, "it is a load")
        try client.call(WithdrawPosts(name: "", object: ""))
        for id in ids { try client.call(RemoveObserver(id)) }
        for number in 0..<600 { try client.call(RemoveRetained(name: "N\(number)")) }
        try client.call(SetSuspended(false))
        client.send(AddObserver(name: "Stays", object: "").message())
        stage.pass(milliseconds: 120_000)
        #expect(stage.service.center?.statistics.clients == 1)
        #expect(tooLarge == [])
    }
}
