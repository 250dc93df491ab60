// SPDX-License-Identifier: Apache-2.0
import CarillonTestLimits
import Testing

@testable import CarillonCore

/// Observers that want no more than one notification of a name and object in a time.
@Suite("R5: minimum intervals", .limited)
struct IntervalTests {
    private func scenario(_ limits: [Limits.Key: UInt64] = [:]) -> Scenario {
        let center = Scenario(limits)
        center.center.remembersChanges = true
        return center
    }

    /// A new center with what the log of this one has, and one with the log written anew.
    private func restored(_ center: Scenario) -> [Scenario] {
        var written: [Change] = []
        center.center.forEachRememberedChange { written.append($0) }
        return [center.changes, written].map { changes in
            let next = Scenario()
            for change in changes { #expect(next.center.restore(change)) }
            let last = center.center.lastNumbers
            next.center.restoreNumbers(lastSerial: last.serial, lastObserver: last.observer)
            next.finishRestoring()
            return next
        }
    }

    private func tags(_ center: Scenario, _ client: ClientName = one) -> [Int] { center.received(client).map(\.tag) }

    @Test("A burst arrives as its first notification, the newest at the end of each interval, and its last one")
    func burst() throws {
        let center = scenario()
        try center.observe(one, interval: 200)
        // A post each millisecond, for a second.
        for _ in 0..<1000 {
            try center.post("Progress")
            center.wait(1)
        }
        #expect(tags(center) == [1, 200, 400, 600, 800, 1000])
        try center.post("Progress")
        #expect(center.statistics.queued == 1 && center.status(one)?.queued == 1)
        center.wait(1000)
        #expect(tags(center) == [1, 200, 400, 600, 800, 1000, 1001])
        #expect(center.statistics.queued == 0 && center.statistics.queuedBytes == 0)
        #expect(center.statistics.coalesced == 994)
        #expect(center.sequences(one) == Array(1...7))
        // Behind a pause the next comes at once.
        try center.post("Progress")
        #expect(tags(center).last == 1002)
        try center.center.checkInvariants()
    }

    @Test("Intervals are separate for each name, object and observer, and other observers get all notifications")
    func apart() throws {
        let center = scenario()
        let slow = try center.observe(one, "A", interval: 300)
        let fast = try center.observe(one, "A", interval: 100)
        let all = try center.observe(one, "A")
        try center.observe(two, interval: 100)
        for object in ["x", "y", "x", "y", ""] { try center.post("A", object) }
        #expect(
            center.received(one).map(\.observers) == [
                [slow, fast, all], [slow, fast, all], [all], [all], [slow, fast, all],
            ])
        #expect(tags(center, two) == [1, 2, 5])
        center.clear()
        center.wait(100)
        #expect(center.received(one).map(\.observers) == [[fast], [fast]] && tags(center) == [3, 4])
        #expect(tags(center, two) == [3, 4])
        try center.post("A", "x")
        center.clear()
        center.wait(1000)
        #expect(
            center.received(one).map { "\($0.object)\($0.tag) \($0.observers.map(\.rawValue))" }
                == ["x6 [\(fast.rawValue)]", "y4 [\(slow.rawValue)]", "x6 [\(slow.rawValue)]"])
        #expect(center.received(one).map(\.serial) == [6, 4, 6])
    }

    @Test("A client has one interval timer, and none while no notification is throttled")
    func timers() throws {
        let center = scenario()
        try center.observe(one, interval: 100)
        for number in 0..<50 { try center.post("A", "\(number)") }
        #expect(center.intervalTimers.isEmpty && center.intervalTimerCount == 0)
        for number in 0..<50 { try center.post("A", "\(number)") }
        #expect(center.intervalTimers.count == 1 && center.intervalTimerCount == 1)
        center.wait(100)
        #expect(center.received(one).count == 100 && center.intervalTimers.isEmpty && center.intervalTimerCount == 1)
        center.wait(10_000)
        #expect(center.intervalTimerCount == 1)
    }

    @Test("An interval timer fires after the interval, even at a fraction of a millisecond")
    func fractions() throws {
        let center = scenario()
        let clock = center.center.clock
        var microseconds: Int64 = 0
        center.center.clock = Clock(time: clock.time, uptime: { clock.uptime() + microseconds })
        try center.observe(one, interval: 100)
        try center.post("A")
        microseconds = 500
        try center.post("A")
        center.wait(100)
        #expect(tags(center) == [1, 2] && center.intervalTimerCount == 1)
    }

    @Test("In a suspended client, drop gets none, deliver-immediately is throttled, coalesce and hold are not")
    func suspended() throws {
        let center = scenario()
        var ids: [SuspensionBehavior: ObserverID] = [:]
        for behavior in SuspensionBehavior.allCases {
            ids[behavior] = try center.observe(one, "", "", behavior, interval: 100)
        }
        let all = ids.values.sorted()
        func got() -> [String] {
            defer { center.clear() }
            return center.received(one).map { note in
                "\(note.tag) "
                    + note.observers.map { id in ids.first { $0.value == id }!.key.rawValue }.joined(separator: " ")
            }
        }
        try center.post("A")
        try center.post("A")
        #expect(center.received(one).map(\.observers) == [all])
        // What waited goes first, but for whom it makes no difference.
        try center.suspend(one)
        #expect(got() == ["1 drop coalesce hold deliver-immediately", "2 drop coalesce hold"])
        center.wait(1000)
        #expect(got() == ["2 deliver-immediately"])
        for _ in 3...5 { try center.post("A") }
        #expect(got() == ["3 coalesce hold deliver-immediately"])
        center.wait(100)
        #expect(got() == ["4 hold", "5 coalesce hold", "5 deliver-immediately"])
        for _ in 6...7 { try center.post("A") }
        try center.resume(one)
        #expect(got() == ["6 hold", "7 coalesce hold"])
        center.wait(1000)
        #expect(got() == ["7 deliver-immediately"])
        try center.center.checkInvariants()
    }

    @Test("S1, R5: a notification that is held for an observer does not also arrive from its throttled notifications")
    func heldIsNotThrottled() throws {
        let center = scenario()
        let holding = try center.observe(one, "A", "", .hold, interval: 100)
        let immediate = try center.observe(one, "A", "", .deliverImmediately, interval: 100)
        try center.observe(one, "Fill", "", .hold)
        for _ in 1...2 { try center.post("A") }
        center.stop(one)
        try center.post(200, of: "Fill")
        try center.suspend(one)
        // Both observers wait for notification 2 when notification 3 is held for one of them.
        try center.post("A")
        center.goOn(one)
        center.wait(1000)
        try center.resume(one)
        center.wait(1000)
        func got(_ id: ObserverID) -> [Int] { center.received(one).filter { $0.observers.contains(id) }.map(\.tag) }
        #expect(got(holding) == [1, 203] || got(holding) == [1, 2, 203])
        #expect(got(immediate) == [1, 203])
        try center.center.checkInvariants()
    }

    @Test("R5, E8: if a resume sends more notifications than may begin intervals, the newest begin them")
    func newestBegin() throws {
        let center = scenario()
        for _ in 0..<511 { try center.observe(one, "", "", .hold) }
        let slow = try center.observe(one, "", "", .hold, interval: 1000)
        try center.suspend(one)
        try center.post(3000, of: "A")
        try center.resume(one)
        center.clear()
        // The newest has begun one; the oldest has not, as many were kept since.
        try center.post("A", "3000")
        try center.post("A", "1")
        let got = center.received(one)
        #expect(got.count == 2 && !got[0].observers.contains(slow) && got[1].observers.contains(slow))
        center.wait(1000)
        #expect(center.received(one).last?.observers == [slow] && center.received(one).count == 3)
        try center.center.checkInvariants()
    }

    @Test("E4: a throttled notification that is blocked on quota is replaced by a small one, which is sent")
    func smallTakesPlace() throws {
        let center = scenario([.inFlightBytes: 100_000])
        try center.observe(one, "A", interval: 100)
        for client in [one, two, three] { center.identify(client, as: client == three ? 8 : 7) }
        try center.post("A")
        try center.post("A", bytes: 60_000)
        // Another process has what one of so many bytes would need.
        center.stop(three)
        try center.observe(three, "B")
        try center.post("B", bytes: 50_000)
        center.wait(100)
        #expect(tags(center) == [1])
        try center.post("A")
        center.wait(100)
        #expect(tags(center) == [1, 4])
        try center.center.checkInvariants()
    }

    @Test("A resumed client gets all held notifications at once, and their intervals begin then")
    func held() throws {
        let center = scenario()
        try center.observe(one, "", "", .hold, interval: 100)
        try center.observe(two, "", "", .coalesce, interval: 100)
        try center.observe(three, "", "", .drop, interval: 100)
        for client in [one, two, three] { try center.suspend(client) }
        for _ in 1...5 { try center.post("A") }
        for client in [one, two, three] { try center.resume(client) }
        #expect(tags(center, one) == [1, 2, 3, 4, 5] && tags(center, two) == [5] && tags(center, three) == [])
        try center.post("A")
        #expect(tags(center, one).count == 5 && tags(center, two).count == 1 && tags(center, three) == [6])
        center.wait(100)
        #expect(tags(center, one).last == 6 && tags(center, two) == [5, 6])
    }

    @Test("S3: an immediate delivery to a suspended client is not throttled, and a throttled one follows held ones")
    func immediately() throws {
        let center = scenario()
        let held = try center.observe(one, "A", "", .hold, interval: 100)
        let immediate = try center.observe(one, "A", "", .deliverImmediately, interval: 100)
        try center.suspend(one)
        try center.post("A")
        try center.post("A")
        #expect(center.received(one).map(\.observers) == [[held, immediate]])
        center.wait(100)
        #expect(center.received(one).map(\.observers) == [[held, immediate], [held], [immediate]])
        #expect(tags(center) == [1, 2, 2])
        try center.post("A", immediately: true)
        #expect(center.received(one).last?.observers == [held, immediate])
    }

    @Test("A notification sent without waiting begins the interval of each of its observers, even 1 ms")
    func beginsForAll() throws {
        let center = scenario()
        let first = try center.observe(one, "A", "", .hold, interval: 1)
        try center.suspend(one)
        try center.post("A", immediately: true)
        let second = try center.observe(one, "A", "", .hold, interval: 1)
        try center.post("A", immediately: true)
        try center.resume(one)
        center.clear()
        try center.post("A")
        #expect(center.received(one).isEmpty)
        center.wait(1)
        #expect(center.received(one).map(\.observers) == [[first, second]])
    }

    @Test("A notification sent without waiting replaces the throttled one, also after a kill")
    func replacedAtOnce() throws {
        let center = scenario()
        try center.observe(one, "A", "", .deliverImmediately, interval: 100)
        for _ in 1...2 { try center.post("A") }
        try center.suspend(one)
        try center.post("A", immediately: true)
        #expect(tags(center) == [1, 3] && center.statistics.coalesced == 1 && center.statistics.queued == 0)
        for next in restored(center) {
            next.wait(1000)
            #expect(next.received(one).isEmpty)
        }
        center.wait(1000)
        #expect(tags(center) == [1, 3])
    }

    @Test("E3: a delivery says whether its notification was throttled")
    func throttled() throws {
        let center = scenario()
        try center.observe(one, interval: 100)
        for _ in 1...2 { try center.post("A") }
        center.wait(100)
        #expect(center.deliveries(one).map(\.isDelayed) == [false, true])
    }

    @Test(
        "Throttled notifications never overtake held notifications that could not be sent yet",
        arguments: [false, true])
    func behindHeld(isUrgent: Bool) throws {
        let center = scenario()
        try center.observe(one, "", "", .hold, mode: .eventTracking, interval: 100)
        try center.observe(one, "", "", .hold)
        try center.suspend(one)
        for _ in 1...300 { try center.post("A") }
        center.stop(one)
        try center.resume(one)
        #expect(tags(center).count < 300)
        for _ in 1...3 {
            try center.post("A", immediately: isUrgent)
            center.wait(60)
        }
        center.goOn(one)
        center.wait(1000)
        #expect(Set(tags(center)) == Set(1...303) && center.statistics.queued == 0)
        var last: [ObserverID: Int] = [:]
        for note in center.received(one) {
            for id in note.observers {
                #expect(note.tag > last[id, default: 0])
                last[id] = note.tag
            }
        }
        #expect(last.values.allSatisfy { $0 == 303 })
    }

    @Test("A client that does not read gets the newest throttled notification when it reads, and has no timer before")
    func stopped() throws {
        let center = scenario()
        try center.observe(one, interval: 100)
        center.stop(one)
        try center.post(200, of: "Fill")
        let before = center.received(one).count
        #expect(before < 200 && center.intervalTimers.isEmpty)
        for _ in 0..<50 {
            try center.post("A")
            center.wait(50)
        }
        #expect(center.received(one).count == before && center.intervalTimers.isEmpty)
        center.goOn(one)
        center.wait(100)
        let last = center.received(one).filter { $0.name == "A" }.map(\.tag)
        #expect(last.first == 201 && last.last == 250 && last.count <= 3, "\(last)")
        #expect(center.statistics.queued == 0)
        try center.center.checkInvariants()
    }

    @Test("E1, S4: throttled notifications are bounded; the excess is sent early, or reported as lost if unread")
    func bounded() throws {
        let center = scenario([.queuedPerClient: 100])
        try center.observe(one, interval: 60_000)
        for _ in 1...2 { try center.post(500, of: "A") }
        #expect(center.received(one).count > 900 && center.losses(one).isEmpty)
        center.stop(one)
        for _ in 1...2 { try center.post(500, of: "B") }
        #expect(try #require(center.status(one)).queued <= 100)
        let lost = try #require(center.status(one)).dropped
        #expect(lost > 0)
        center.goOn(one)
        #expect(center.losses(one).reduce(0, +) == lost)
        // Some at a time.
        center.wait(60_010)
        #expect(center.statistics.queued == 0)
        try center.center.checkInvariants()
    }

    @Test(
        "E3: throttled notifications are delivered once after a restart, and those sent before it are not",
        arguments: [false, true])
    func comesBack(isStopped: Bool) throws {
        let center = scenario()
        let id = try center.observe(one, "A", interval: 1000)
        let other = try center.observe(one, "A", interval: 5000)
        if isStopped { center.stop(one) }
        for object in ["x", "x", "y", "y", "z", "z"] { try center.post("A", object) }
        if !isStopped { center.wait(1000) }
        for next in restored(center) {
            #expect(Set(next.objects(one)) == ["x", "y", "z"])
            let got = next.received(one)
            #expect(
                got.map(\.tag) == [2, 4, 6] && got.allSatisfy { $0.observers == (isStopped ? [id, other] : [other]) })
            next.wait(10_000)
            #expect(next.received(one).count == 3 && next.statistics.queued == 0)
            try next.center.checkInvariants()
        }
    }

    @Test("E3: the newest of several throttled notifications of a key is delivered after a restart")
    func newestComesBack() throws {
        let center = scenario()
        try center.observe(one, "A", interval: 1000)
        for _ in 1...4 { try center.post("A") }
        for next in restored(center) {
            next.wait(10_000)
            #expect(tags(next) == [4])
        }
        // It is the newest by its serial, wherever it stands.
        func isDelayed(_ change: Change) -> Bool { if case .throttled = change { true } else { false } }
        let throttled = center.changes.filter(isDelayed)
        #expect(throttled.count == 3)
        let next = Scenario()
        for change in center.changes.filter({ !isDelayed($0) }) + throttled.reversed() {
            _ = next.center.restore(change)
        }
        next.finishRestoring()
        next.wait(10_000)
        #expect(tags(next) == [4])
    }

    @Test("Notifications held during a suspension replace throttled ones that could not be sent before it")
    func replacedByHeld() throws {
        let center = scenario()
        let id = try center.observe(one, "A", "", .hold, interval: 5000)
        try center.observe(one, "Fill")
        for _ in 1...2 { try center.post("A", "x") }
        center.stop(one)
        try center.post(200, of: "Fill")
        try center.post("A", "y")
        try center.post("A", "y")
        try center.suspend(one)
        for object in ["x", "y", "y"] { try center.post("A", object) }
        try center.resume(one)
        for next in [center] + restored(center) {
            if next === center { center.goOn(one) }
            next.wait(20_000)
            let got = next.received(one).filter { $0.name == "A" && $0.observers == [id] }
            #expect(got.map(\.serial) == got.map(\.serial).sorted() && next.statistics.queued == 0)
            #expect(got.map(\.tag).suffix(3) == [205, 206, 207], "\(got.map(\.tag))")
            try next.center.checkInvariants()
        }
    }

    @Test("E3: a restored throttled notification waits behind older notifications that could not be sent yet")
    func comesBackBehind() throws {
        let center = scenario()
        try center.observe(one, "", "", .hold, interval: 100)
        center.stop(one)
        try center.post(300, of: "Fill")
        for _ in 1...2 { try center.post("Fill", "300") }
        let next = Scenario()
        next.center.takeOver(center.center)
        next.stop(one)
        next.finishRestoring()
        next.wait(1000)
        next.goOn(one)
        next.wait(1000)
        #expect(next.received(one).filter { $0.object == "300" }.map(\.tag) == [300, 302])
        #expect(next.statistics.queued == 0)
    }

    @Test("D8: throttled notifications of removed observers and departed clients are not sent")
    func removed() throws {
        let center = scenario()
        let id = try center.observe(one, "A", interval: 100)
        let kept = try center.observe(one, "A", interval: 100)
        try center.observe(two, "A", interval: 100)
        for _ in 1...2 { try center.post("A") }
        try center.remove(id, of: one)
        center.disappear(two)
        center.wait(100)
        #expect(center.received(one).last?.observers == [kept] && center.received(two).count == 1)
        #expect(center.removeAll(of: one) == 1)
        #expect(center.statistics.queued == 0)
        try center.center.checkInvariants()
    }

    @Test("R2: a retained value begins an interval, and a throttled notification that expires is no loss")
    func values() throws {
        let center = scenario()
        try center.post("A", retention: Retention())
        try center.observe(one, "A", retained: true, interval: 5000)
        try center.post("A", expiresAfter: 2)
        #expect(tags(center) == [1])
        center.wait(5000)
        #expect(tags(center) == [1] && center.statistics.expired == 1 && center.losses(one).isEmpty)
        try center.post("A")
        #expect(tags(center) == [1, 3])
    }

    @Test("The remembered intervals are bounded for any number of names")
    func many() throws {
        let center = scenario()
        try center.observe(one, interval: .max)
        // All that is kept is looked through by each check.
        center.center.checksInvariants = false
        let names = isQuick ? 2_000 : 20_000
        for number in 0..<names { try center.post("A", "\(number)") }
        #expect(center.received(one).count == names)
        try center.post("A", "\(names - 1)")
        #expect(center.statistics.queued <= 1 && center.statistics.queuedBytes < 1 << 20)
        try center.center.checkInvariants()
    }

    @Test("E1: beyond the number of remembered intervals, ended intervals are discarded before running ones")
    func manyOver() throws {
        let center = scenario()
        try center.observe(one, interval: 100)
        // All that is kept is looked through by each check.
        center.center.checksInvariants = false
        let (over, within) = (IntervalQueue.maxIdle - 1000, 1001)
        for number in 0..<over { try center.post("Over", "\(number)") }
        center.wait(100)
        for number in 0..<within { try center.post("Within", "\(number)") }
        try center.post("Within", "0")
        #expect(center.received(one).count == over + within && center.statistics.queued == 1)
        center.wait(100)
        #expect(center.received(one).count == over + within + 1)
        try center.center.checkInvariants()
    }

    @Test("G3: each origin has its own minimum intervals, and a throttled notification replaces only its own origin's")
    func origins() throws {
        let center = scenario()
        try center.observe(one, "A", interval: 100)
        let (alpha, beta) = (try OutsideOrigin(host: "alpha", user: nil), try OutsideOrigin(host: "beta", user: nil))
        for origin in [nil, alpha, beta, nil, alpha, alpha] { try center.post("A", origin: origin) }
        #expect(center.received(one).map(\.serial) == [1, 2, 3])
        center.wait(100)
        #expect(center.received(one).map(\.serial) == [1, 2, 3, 4, 6])
        #expect(center.received(one).map(\.origin) == [nil, alpha, beta, nil, alpha])
        try center.center.checkInvariants()
    }

    @Test("In random runs, an observer's notifications of a key are an interval apart, in order, and include the last")
    func random() throws {
        for seed in 1...(isQuick ? 3 : 60) as ClosedRange<UInt64> {
            var generator = SeededGenerator(seed: seed)
            func number(_ range: ClosedRange<Int64>) -> Int64 { .random(in: range, using: &generator) }
            let center = scenario()
            let clients = [one, two, three]
            var intervals: [ObserverID: Int64] = [:]
            for client in clients {
                for _ in 0..<number(1...4) {
                    let interval = [0, 50, 200, 1000].randomElement(using: &generator)!
                    let id = try center.observe(client, number(0...1) == 0 ? "" : "A", interval: UInt32(interval))
                    intervals[id] = Int64(interval)
                }
            }
            var (time, times): (Int64, [String: [(time: Int64, tag: Int)]]) = (0, [:])
            var heard: [ClientName: Int] = [:]
            func look() {
                for client in clients {
                    let all = center.received(client)
                    for note in all[heard[client, default: 0]...] {
                        for id in note.observers {
                            let kind = "\(note.name) \(note.object) \(note.origin?.host ?? "")"
                            times["\(id.rawValue) \(kind)", default: []].append((time, note.tag))
                        }
                    }
                    heard[client] = all.count
                }
            }
            var last: [String: Int] = [:]
            for tag in 1...200 {
                let (name, object) = (["A", "B"][Int(number(0...1))], ["", "x", "y"][Int(number(0...2))])
                let host = number(0...3) == 0 ? ["alpha", "beta"][Int(number(0...1))] : nil
                try center.post(name, object, origin: OutsideOrigin(host: host, user: nil))
                last["\(name) \(object) \(host ?? "")"] = tag
                look()
                for _ in 0..<number(0...40) {
                    center.wait(1)
                    time += 1
                    look()
                }
            }
            for _ in 0..<1100 {
                center.wait(1)
                time += 1
                look()
            }
            for (key, all) in times {
                let id = ObserverID(rawValue: UInt64(key.prefix { $0 != " " })!)
                let gaps = zip(all, all.dropFirst()).map { $1.time - $0.time }
                #expect(gaps.allSatisfy { $0 >= intervals[id]! }, "seed \(seed), \(key): \(gaps)")
                #expect(zip(all, all.dropFirst()).allSatisfy { $0.tag < $1.tag }, "seed \(seed), \(key)")
                #expect(all.last?.tag == last[String(key.drop { $0 != " " }.dropFirst())], "seed \(seed), \(key)")
            }
            #expect(center.statistics.queued == 0, "seed \(seed)")
            try center.center.checkInvariants()
        }
    }
}
