// SPDX-License-Identifier: Apache-2.0
import Carillon
import CarillonTestLimits
import CarillonTestSupport
import Foundation
import Glibc
import Synchronization
import Testing

@Suite("Posts of the Swift library on a real bus", .limited)
struct PostingTests {
    private let name = Notification.Name("a")

    @Test("D3: a waiting post returns the number of matching clients, not of observers")
    func counts() async throws {
        let desk = try Desk()
        let (first, second, poster) = (desk.center(), desk.center(), desk.center())
        #expect(try await poster.postAndWait(named: name) == 0)
        for center in [first, second] {
            for _ in 0..<3 { center.addObserver(forName: name, object: "o", queue: nil) { _ in } }
            center.addObserver(forName: nil, object: "o", queue: nil) { _ in }
            try center.settle()
        }
        #expect(try await poster.postAndWait(named: name, object: "o", userInfo: ["n": 1]) == 2)
        #expect(try await poster.postAndWait(named: name, object: "p") == 0)
        second.suspended = true
        try second.settle()
        #expect(try await poster.postAndWait(named: name, object: "o") == 2)
        poster.addObserver(forName: name, object: nil, queue: nil) { _ in }
        #expect(
            try await poster.postAndWait(named: name, object: "o") == 3, "posts and registrations go in their order")
        #expect(poster.statistics.posted == 5 && poster.statistics.failedPosts == 0)
    }

    @Test("B4, N3: throwing calls refuse invalid posts before they leave the process")
    func refusedAtOnce() async throws {
        let center = DistributedNotificationCenter(busAddress: "unix:path=/nonexistent")
        func error(
            _ name: String, _ object: String? = nil, _ userInfo: [AnyHashable: Any] = [:],
            _ options: DistributedNotificationCenter.Options = []
        ) -> DistributedNotificationError? {
            do throws(DistributedNotificationError) {
                try center.post(named: .init(name), object: object, userInfo: userInfo, options: options)
            } catch {
                return error
            }
            return nil
        }
        #expect(error("") == .invalidName(""))
        #expect(error("a\0") == .invalidName("a\0"))
        #expect(error("a", "o\0") != nil)
        #expect("\(error("a", nil, [:], .init(rawValue: 8))!)".contains("8"))
        let values: [(Any, String)] = [
            (NSNull(), "userInfo.k"), (UUID(), "userInfo.k"), (URL(string: "a:b")!, "userInfo.k"),
            ([1, [2, self]] as [Any], "userInfo.k[1][1]"), (["x": ["y": Set([1])]], "userInfo.k.x.y"),
            ("a\0b", "userInfo.k"), (["x\0": 1], "userInfo.k.x\0"), (Substring("a"), "userInfo.k"),
            (Optional<Int>.none as Any, "userInfo.k"), (NSDecimalNumber(value: 1), "userInfo.k"),
            (Decimal(1), "userInfo.k"), ([1: 2], "userInfo.k[1]"), (NSObject(), "userInfo.k"),
            (Date(timeIntervalSince1970: 1e300), "userInfo.k"), ({} as () -> Void, "userInfo.k"),
            (NSArray(array: [NSNull()]), "userInfo.k[0]"), (Character("a"), "userInfo.k"), (1...2, "userInfo.k"),
        ]
        for (value, path) in values {
            let refusal = error("a", nil, ["fine": 1, "k": value])
            guard case .invalidUserInfo(path, _) = refusal else {
                Issue.record("\(value): \(String(describing: refusal)), not at \(path)")
                continue
            }
        }
        #expect({ if case .invalidUserInfo("userInfo[5]", _) = error("a", nil, [5: 1]) { true } else { false } }())
        var deep: Any = 1
        for _ in 0..<100 { deep = [deep] }
        #expect({ if case .invalidUserInfo = error("a", nil, ["k": deep]) { true } else { false } }())
        await #expect(throws: DistributedNotificationError.invalidName("")) {
            try await center.postAndWait(named: .init(""))
        }
        #expect(center.statistics.posted == 0)
    }

    @Test("B4: calls with macOS signatures count and report invalid posts instead of throwing")
    func refusedQuietly() throws {
        let desk = try Desk()
        let center = desk.center()
        let errors = Inbox<DistributedNotificationError>()
        let observation = center.observeEvents { event in
            if case .postFailed(let error) = event { errors.add(error) }
        }
        center.post(name: .init(""), object: nil)
        center.post(Notification(name: name, object: NSObject()))
        center.post(name: name, object: 5)
        center.postNotificationName(name, object: nil, userInfo: ["k": NSNull()])
        center.postNotificationName(name, object: nil, userInfo: ["k": NSNull()], deliverImmediately: true)
        center.postNotificationName(name, object: nil, options: .init(rawValue: 8))
        #expect(try errors.wait(for: 6)[0] == .invalidName(""))
        #expect(center.statistics.failedPosts == 6 && center.statistics.posted == 0)
        #expect(center.connectionState == .connecting, "nothing was asked of the service")
        withExtendedLifetime(observation) {}
    }

    @Test("G1: a post to all sessions is refused if no name is exported")
    func allSessions() async throws {
        let desk = try Desk()
        let center = desk.center()
        do {
            try await center.postAndWait(named: name, options: .postToAllSessions)
            Issue.record("it was accepted")
        } catch {
            guard case .notAllowed(let reason) = error else {
                Issue.record("\(error)")
                return
            }
            #expect(reason.contains("export in [Sessions]"))
        }
        #expect(try await center.postAndWait(named: name) == 0)
    }

    @Test("E1: a post beyond a limit of the service fails with a typed error that contains the limit")
    func limits() async throws {
        let desk = try Desk()
        let center = desk.center()
        let cases: [(String, String?, [AnyHashable: Any], String)] = [
            (String(repeating: "a", count: 1025), nil, [:], "1024"),
            ("a", String(repeating: "a", count: 4097), [:], "4096"),
            ("a", nil, ["k": Data(count: 1 << 20)], "1048576"),
            ("a", nil, ["k": nested(17)], "16"),
        ]
        for (name, object, userInfo, limit) in cases {
            do {
                try await center.postAndWait(named: .init(name), object: object, userInfo: userInfo)
                Issue.record("beyond \(limit) was accepted")
            } catch .limitExceeded(let message) {
                #expect(message.contains(limit), "\(message)")
            } catch {
                Issue.record("\(limit): \(error)")
            }
        }
        // Just within them.
        try await center.postAndWait(
            named: .init(String(repeating: "a", count: 1024)), object: String(repeating: "o", count: 4096),
            userInfo: ["k": nested(15), "d": Data(count: 1_000_000)])
    }

    private func nested(_ depth: Int) -> Any {
        var value: Any = 1
        for _ in 0..<depth { value = ["x": value] }
        return value
    }

    @Test("N3: values of every type arrive unchanged through the real service")
    func roundTrips() async throws {
        let desk = try Desk()
        let center = desk.center()
        var notifications = center.notifications(named: name).makeAsyncIterator()
        func trip(_ value: Any) async throws -> Any? {
            try await center.postAndWait(named: name, userInfo: ["k": value])
            return await notifications.next()?.userInfo?["k"]
        }
        func expect<Value: Equatable>(_ value: Value) async throws {
            let back = try await trip(value)
            #expect(
                back.map { type(of: $0) == Value.self } == true && back as? Value == value, "\(value): \(back ?? "")")
        }
        for value in [Int.min, -1, 0, 1, Int.max, 1 << 53, (1 << 53) + 1] { try await expect(value) }
        for value in [0.0, 1.0, -1.5, 0.1, .infinity, -.infinity, .pi, .leastNonzeroMagnitude] {
            try await expect(value)
        }
        #expect((try await trip(Double.nan) as? Double)?.isNaN == true)
        #expect((try await trip(-0.0) as? Double)?.sign == .minus)
        for value in [true, false] { try await expect(value) }
        for value in ["", "a", "é", "e\u{301}", "日本語 🔔", "\u{FEFF}\u{10FFFF}", String(repeating: "x", count: 70_000)] {
            try await expect(value)
            #expect((try await trip(value) as? String)?.utf8.elementsEqual(value.utf8) == true)
        }
        for value in [Data(), Data([0]), Data(0...255), Data(count: 500_000)] { try await expect(value) }
        for date in [
            Date.distantPast, .distantFuture, Date(timeIntervalSince1970: 0), Date(timeIntervalSince1970: -0.000001),
        ] {
            try await expect(date)
        }
        let now = Date()
        #expect(abs((try await trip(now) as? Date ?? .distantPast).timeIntervalSince(now)) < 0.000_001)

        // Other widths: read as what they were posted as, and as any type that can hold them.
        #expect(try await trip(Int8.min) as? Int8 == .min)
        #expect(try await trip(Int16.min) as? Int16 == .min)
        #expect(try await trip(Int32.min) as? Int32 == .min)
        #expect(try await trip(Int64.min) as? Int == .min)
        #expect(try await trip(UInt8.max) as? UInt8 == .max)
        #expect(try await trip(UInt16.max) as? UInt16 == .max)
        #expect(try await trip(UInt32.max) as? UInt32 == .max)
        #expect(try await trip(UInt64.max) as? UInt64 == .max)
        #expect(try await trip(UInt.max) as? UInt == .max)
        #expect(try await trip(UInt8(5)) as? Int == 5)
        #expect(try await trip(Float.greatestFiniteMagnitude) as? Double == Double(Float.greatestFiniteMagnitude))
        #expect(try await trip(CGFloat(1.5)) as? Double == 1.5)

        // Collections.
        #expect(try await trip([[1, 2], [], [3]]) as? [[Int]] == [[1, 2], [], [3]])
        #expect(try await trip([Any]()) as? [Int] == [])
        #expect(try await trip([1, "a", true, 2.5] as [Any]) as? [AnyHashable] == [1, "a", true, 2.5])
        #expect(try await trip(["a": ["b": [Data([1])]]]) as? [String: [String: [Data]]] == ["a": ["b": [Data([1])]]])
        #expect(try await trip([String: Any]()) as? [String: Int] == [:])

        // Foundation's.
        #expect(try await trip("a" as NSString) as? String == "a")
        #expect(try await trip(NSNumber(value: true)) as? Bool == true)
        #expect(try await trip(NSNumber(value: 1)) as? Int == 1)
        #expect(try await trip(NSNumber(value: 1.0)) as? Double == 1)
        #expect(try await trip(NSNumber(value: UInt64.max)) as? UInt64 == .max)
        #expect(
            try await trip(NSDictionary(dictionary: ["a": NSArray(array: [1, 2])])) as? [String: [Int]] == [
                "a": [1, 2]
            ])
        #expect(try await trip(NSMutableData(data: Data([1]))) as? Data == Data([1]))
        #expect(try await trip(NSDate(timeIntervalSince1970: 5)) as? Date == Date(timeIntervalSince1970: 5))
        // What code for macOS asks for.
        #expect((try await trip(5) as? NSNumber)?.intValue == 5)
        #expect((try await trip("a") as? NSString) == "a")
        #expect((try await trip([1]) as? NSArray)?.count == 1)
        #expect((try await trip(["a": 1]) as? NSDictionary)?["a"] as? Int == 1)
    }

    @Test("D4: posts of one center arrive in posting order, except for immediate ones, for all posting calls")
    func order() async throws {
        let desk = try Desk()
        let (ear, poster) = (try Ear(desk), desk.center())
        try ear.listen("a", tag: "a")
        for number in 0..<2_000 {
            switch number % 5 {
            case 0: poster.post("a", number: number)
            case 1: poster.post(name: name, object: nil, userInfo: ["number": number])
            case 2: try { try poster.post(named: name, userInfo: ["number": number]) }()
            case 3: _ = try await poster.postAndWait(named: name, userInfo: ["number": number])
            default: poster.post("a", number: number, options: .deliverImmediately)
            }
        }
        let heard = try ear.everything(from: poster)
        // M6: where it waits as the receiver lags, what is to be delivered immediately goes before the rest.
        func expected(immediate: Bool) -> [String] {
            (0..<2_000).filter { ($0 % 5 == 4) == immediate }.map { "a \($0)" }
        }
        let immediate = Set(expected(immediate: true))
        #expect(heard.filter(immediate.contains) == expected(immediate: true))
        #expect(heard.filter { !immediate.contains($0) } == expected(immediate: false))
        #expect(poster.statistics.posted == 2_001 && ear.center.statistics.received == 2_001)
    }

    @Test("D1: a stopped service blocks no call; flush fails, and all posts arrive after the service continues")
    func stopped() async throws {
        let desk = try Desk()
        let (ear, poster) = (try Ear(desk), desk.center())
        try ear.listen("a", tag: "a")
        try poster.settle()
        try desk.service.stop()
        defer { desk.service.goOn() }
        for number in 0..<20_000 { poster.post("a", number: number) }
        let late = ear.center.observe(.init("late")) { _ in }
        ear.center.suspended = false
        #expect(!poster.flush(timeout: 0.1))
        desk.service.goOn()
        #expect(await poster.flush())
        try ear.center.settle()
        #expect(try ear.everything(from: poster) == (0..<20_000).map { "a \($0)" })
        #expect(poster.statistics.failedPosts == 0)
        withExtendedLifetime(late) {}
    }

    @Test("A center that was never used flushes at once and needs no bus")
    func unused() async {
        let center = DistributedNotificationCenter(busAddress: "unix:path=/nonexistent")
        #expect(center.flush(timeout: 0))
        #expect(await center.flush())
        #expect(center.connectionState == .connecting)
    }

    @Test("The exit of a program waits a limited time for a stopped service, and reports the lost posts")
    func exitWithUnsent() throws {
        let stage = try Stage()
        _ = try stage.run("carillon-macos-swift5", "post", "com.example.Posted")
        let pid = try #require(try stage.bus.processID(ofOwner: ServiceProcess.busName))
        try ProcessState.stop(pid)
        defer { kill(pid, SIGCONT) }
        let result = try stage.run("carillon-macos-swift5", "post", "com.example.Posted")
        #expect(result.exitCode == 0, "\(result)")
        #expect(
            result.standardError.contains("posts are lost with the end of the program")
                || result.standardError.contains("posts may be lost with the end of the program"), "\(result)")
    }

    @Test("E10: exit under load loses no posts and reports none", arguments: BusKind.available)
    func exitUnderLoad(kind: BusKind) throws {
        let stage = try Stage(.before, kind)
        func posted() throws -> Int {
            let reply = try Command.run(
                "gdbus",
                [
                    "call", "--address", stage.bus.address, "--dest", ServiceProcess.busName, "--object-path",
                    ServiceProcess.objectPath, "--method", "org.freedesktop.DBus.Properties.Get",
                    "org.carillon.NotificationCenter1", "Statistics",
                ], environment: stage.bus.environment)
            let match = reply.standardOutput.firstMatch(of: /'posted': (?:uint64 )?(\d+)/)
            return try #require(match.flatMap { Int($0.1) }, "\(reply)")
        }
        let before = try posted()
        let result = try stage.run("carillon-loop-probe", "flood")
        #expect(result.exitCode == 0 && result.standardError.isEmpty, "\(result)")
        #expect(try posted() - before == 130_000)
    }

    @Test(
        "E10: refused posts are counted and reported, and make flush return false",
        arguments: [DistributedNotificationCenter.Transport.bus, .channel])
    func refused(transport: DistributedNotificationCenter.Transport) throws {
        let desk = try Desk()
        let center = desk.center()
        center.transport = transport
        let told = Inbox<String>()
        let observation = center.observeEvents { event in
            if case .postFailed(let error) = event { told.add("\(error)") }
        }
        let long = Notification.Name(String(repeating: "n", count: 2_000))
        try center.settle()
        for count in [1, 3, 200] {
            let before = center.statistics.failedPosts
            for _ in 0..<count { center.post(name: long, object: nil) }
            center.post(name: .init("Good"), object: nil)
            #expect(!center.flush(timeout: 20))
            #expect(center.statistics.failedPosts - before == UInt64(count))
            #expect(center.unsentPosts == 0)
            center.post(name: .init("Good"), object: nil)
            #expect(center.flush(timeout: 20), "what is told is over")
        }
        // Also without a flush.
        let before = center.statistics.failedPosts
        center.post(name: long, object: nil)
        try eventually("it is counted") { center.statistics.failedPosts == before + 1 }
        try eventually("and told: \(told.all)") { told.all.contains { $0.contains("name-length") } }
        try eventually("it is not on its way") { center.unsentPosts == 0 }
        // A refused post is not lost once more with the service.
        desk.service.signal(SIGKILL)
        _ = try desk.service.waitForExit()
        try eventually("it has ended") { center.connectionState != .connected }
        #expect(center.statistics.uncertainPosts == 0)
        withExtendedLifetime(observation) {}
    }

    @Test("E10: a failure that a cancelled flush did not report is reported by the next flush")
    func flushes() async throws {
        let desk = try Desk()
        let center = desk.center()
        // Nothing has left.
        center.post(name: .init(""), object: nil)
        #expect(center.lostPosts == 1 && !center.flush(timeout: 1))
        #expect(center.flush(timeout: 1))
        center.post(name: .init("com.example.Posted"), object: nil)
        #expect(center.flush(timeout: 20))
        center.post(name: .init(""), object: nil)
        let cancelled = Task {
            while !Task.isCancelled { await Task.yield() }
            return await center.flush()
        }
        cancelled.cancel()
        #expect(await !cancelled.value)
        #expect(!center.flush(timeout: 20), "it is told by the next one")
        #expect(center.flush(timeout: 20))
    }

    @Test("E10: first posts in flight to a killed service are counted once as lost", arguments: [1, 2, 5, 20])
    func killedAtFirst(count: Int) throws {
        let desk = try Desk()
        try ProcessState.stop(desk.service.pid)
        let center = desk.center()
        for _ in 0..<count { center.post(name: .init("com.example.Posted"), object: nil) }
        // They wait for the service's first answer, and then leave together.
        desk.service.signal(SIGCONT)
        #expect(center.flush(timeout: 20) && center.lostPosts == 0 && center.unsentPosts == 0)
        try ProcessState.stop(desk.service.pid)
        for _ in 0..<count { center.post(name: .init("com.example.Posted"), object: nil) }
        try eventually("they have left") { center.unsentPosts == count }
        desk.service.signal(SIGKILL)
        _ = try desk.service.waitForExit()
        try eventually("each is told once: \(center.statistics)") { center.lostPosts == count }
        let service = try ServiceProcess(on: desk.bus)
        try eventually("there is another one") { center.connectionState == .connected }
        #expect(!center.flush(timeout: 20) && center.lostPosts == count)
        withExtendedLifetime(service) {}
    }

    @Test("E10: posts in flight to a killed service are reported as uncertain, and the next flush fails")
    func killedService() throws {
        let desk = try Desk()
        let center = desk.center()
        let told = Inbox<Int>()
        let observation = center.observeEvents { event in
            if case .postsMayBeLost(let count) = event { told.add(count) }
        }
        func post(_ count: Int) { for _ in 0..<count { center.post(name: .init("com.example.Posted"), object: nil) } }
        post(10)
        #expect(center.flush(timeout: 10) && center.unsentPosts == 0)
        try ProcessState.stop(desk.service.pid)
        post(10)
        try eventually("they have left: \(center.unsentPosts)") { center.unsentPosts == 10 }
        desk.service.signal(SIGKILL)
        _ = try desk.service.waitForExit()
        // Those that had not left yet have failed.
        func counted() -> UInt64 { center.statistics.uncertainPosts + center.statistics.failedPosts }
        try eventually("told: \(center.statistics)") { counted() == 10 && !told.all.isEmpty }
        try eventually("events") { UInt64(told.all.reduce(0, +)) == center.statistics.uncertainPosts }
        let service = try ServiceProcess(on: desk.bus)
        try eventually("there is another one") { center.connectionState == .connected }
        #expect(!center.flush(timeout: 10), "ten may be lost")
        post(10)
        #expect(center.flush(timeout: 10) && center.unsentPosts == 0 && counted() == 10)
        withExtendedLifetime((observation, service)) {}
    }

    @Test(
        "E10: posts without an answer are confirmed automatically, so that no later end of a service reports losses",
        arguments: [SIGTERM, SIGKILL], BusKind.available)
    func confirmed(signal: Int32, kind: BusKind) throws {
        let desk = try Desk(kind)
        let center = desk.center()
        let ear = try Ear(desk)
        try ear.listen("com.example.Posted", tag: "n")
        let events = center.observeEvents { event in
            if case .postsMayBeLost(let count) = event { Issue.record("\(count) may be lost") }
        }
        var services = [desk.service]
        for round in 0..<3 {
            for number in 0..<3 { center.post("com.example.Posted", number: 3 * round + number) }
            try eventually("they are confirmed: \(center.unsentPosts)") { center.unsentPosts == 0 }
            services.last!.signal(signal)
            _ = try services.last!.waitForExit()
            services.append(try ServiceProcess(on: desk.bus))
            try eventually("there is another one") { center.connectionState == .connected }
        }
        #expect(center.flush(timeout: 20) && center.lostPosts == 0)
        #expect(try ear.everything(from: center) == (0..<9).map { "n \($0)" })
        withExtendedLifetime((events, services)) {}
    }

    @Test(
        "E10: a service that ends in order answers posts in flight, and the bus keeps the rest for the next service"
    )
    func endsInOrder() throws {
        let bus = try PrivateBus(activations: [.service()])
        func center() -> DistributedNotificationCenter {
            let center = DistributedNotificationCenter(busAddress: bus.address)
            center.defaultDelivery = .ownQueue
            return center
        }
        let (poster, observer, heard) = (center(), center(), Inbox<Int>())
        observer.addObserver(forName: .init("n"), object: nil, suspensionBehavior: .hold, queue: nil) { note in
            heard.add(note.userInfo?["number"] as? Int ?? -1)
        }
        try observer.settle()
        try poster.settle()
        for round in 0..<5 {
            let service = try #require(try bus.processID(ofOwner: "org.carillon.NotificationCenter1"))
            try ProcessState.stop(service)
            for number in 0..<5 { poster.post("n", number: 5 * round + number) }
            try eventually("they have left: \(poster.unsentPosts)") { poster.unsentPosts == 5 }
            for signal in [SIGTERM, SIGCONT] { kill(service, signal) }
            try eventually("the next one serves") {
                try bus.processID(ofOwner: "org.carillon.NotificationCenter1").map { $0 != service } ?? false
            }
            #expect(poster.flush(timeout: 20), "\(poster.statistics)")
        }
        try eventually("all: \(heard.all)") { heard.all.count == 25 }
        #expect(heard.all == Array(0..<25) && poster.lostPosts == 0)
        withExtendedLifetime(observer) {}
    }

    @Test("Repeated post failures are reported in few events")
    func fewEvents() throws {
        let bus = try PrivateBus()
        let center = DistributedNotificationCenter(busAddress: bus.address)
        center.defaultDelivery = .ownQueue
        let errors = Inbox<DistributedNotificationError>()
        let observation = center.observeEvents { event in
            if case .postFailed(let error) = event { errors.add(error) }
        }
        for number in 0..<5_000 { center.post("n", number: number) }
        try eventually("they have failed: \(center.statistics)") { center.statistics.failedPosts == 5_000 }
        try eventually("told") { !errors.all.isEmpty }
        center.post("n", number: 1)
        try eventually("told again") { errors.all.count > 1 }
        #expect(errors.all.count < 20, "\(errors.all.count)")
        withExtendedLifetime(observation) {}
    }

    @Test("The exit of a program without a bus reports the failed posts")
    func exitWithoutBus() throws {
        let stage = try Stage()
        stage.bus.stop()
        let result = try stage.run("carillon-macos-swift5", "post", "com.example.Posted")
        #expect(result.exitCode == 0 && result.standardError.contains("a post failed"), "\(result)")
        #expect(result.standardError.contains(" have failed, and 0 may be lost"), "\(result)")
    }

    @Test("Events arrive until the handle ends, and states also as local notifications")
    func events() throws {
        let desk = try Desk()
        let center = desk.center()
        let (told, local) = (Inbox<String>(), Inbox<String>())
        var observation: DistributedNotificationCenter.Observation? = center.observeEvents { told.add("\($0)") }
        let token = NotificationCenter.default.addObserver(
            forName: .distributedNotificationCenterStateDidChange, object: center, queue: nil
        ) { note in
            if let state = note.userInfo?["state"] as? DistributedNotificationCenter.ConnectionState {
                local.add("\(state)")
            }
        }
        try center.settle()
        #expect(center.connectionState == .connecting, "it was not used")
        center.post("a", number: 1)
        #expect(try local.wait(for: 1) == ["connected"])
        let first = try told.wait(for: 1)
        #expect(first.count == 1 && first[0].hasSuffix("connected)"), "\(first)")
        withExtendedLifetime(observation) {}
        observation = nil
        desk.bus.stop()
        // A bus that ends may have closed the service's connection first: then there is no service for a moment.
        try eventually("the end of the bus: \(local.all)") { local.contains { $0.hasPrefix("disconnected") } }
        #expect(told.all.count == 1)
        #expect({ if case .disconnected = center.connectionState { true } else { false } }())
        NotificationCenter.default.removeObserver(token)
    }

    @Test("A center that is released sends its waiting posts and leaves the bus")
    func deinitialised() throws {
        let desk = try Desk()
        let ear = try Ear(desk)
        try ear.listen("a", tag: "a")
        do {
            let poster = desk.center()
            poster.addObserver(forName: name, object: nil, queue: nil) { _ in }
            for number in 0..<1_000 { poster.post("a", number: number) }
        }
        try eventually("all of them: \(ear.heard.all.count)") { ear.heard.contains { $0 == "a 999" } }
        #expect(ear.heard.all.filter { $0.hasPrefix("a ") } == (0..<1_000).map { "a \($0)" })
        try eventually("its registrations are gone") { try observerCounts(on: desk.bus) == [2] }
    }
}
