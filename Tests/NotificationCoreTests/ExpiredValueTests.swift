// SPDX-License-Identifier: Apache-2.0
import CarillonTestLimits
import Testing

@testable import CarillonCore

/// A value whose time is over is gone for everybody who looks, and there is no timer: so each way of looking has to find
/// that out. A new way is one more case of ``Look``, or of ``Room``.
@Suite("R1, R2, R6: expired values in every kind of access", .limited)
struct ExpiredValueTests {
    /// By what somebody finds out which values there are.
    enum Look: CaseIterable, Sendable {
        case getAny, getByName, getByObject, getOne
        case observeAny, observeByName, observeByObject, observeOne
        /// By an observer that has asked before, and reads again.
        case owedStopped
        /// By one that is resumed.
        case owedSuspendedHold, owedSuspendedCoalesce
        /// By one to whom something is delivered immediately while it is suspended.
        case owedFlushed
        /// By one of which it is found out that it has read.
        case owedWitnessed
        case follow, followFurther
        case removeAny, removeByName, removeOne, removeOneOfPlace
        /// The service was started again, and then somebody asks, or observes.
        case restartGet, restartObserve
        /// The same with an observer that had asked before.
        case restartOwed
    }

    private let one: ClientName = ":1.1"
    private let poster: ClientName = ":1.9"

    /// A center with a value for ten seconds, `Short x`, between two that stay.
    private func scene() throws -> Scenario {
        let scene = Scenario()
        scene.center.remembersChanges = true
        try post("First", on: scene)
        try post("Short", expiresAfter: 10, on: scene)
        try post("Last", on: scene)
        return scene
    }

    @Test("R1: a value expires exactly expires-after seconds after its post", arguments: [1, 10, .max])
    func expiry(seconds: UInt32) {
        for now in [0, 1, 999_999, 1_000_000, 1_234_567] as [Int64] {
            #expect(Clock.expiry(in: seconds, from: now) - now == Int64(seconds) * 1_000_000, "from \(now) on")
        }
    }

    private func post(_ name: String, expiresAfter: UInt32? = nil, on scene: Scenario) throws {
        try scene.post(name, "x", retention: Retention(), expiresAfter: expiresAfter, from: poster)
    }

    private func restarted(_ scene: Scenario) -> Scenario {
        let next = Scenario()
        next.seconds = scene.seconds
        for change in scene.changes { _ = next.center.restore(change) }
        let last = scene.center.lastNumbers
        next.center.restoreNumbers(lastSerial: last.serial, lastObserver: last.observer)
        next.finishRestoring()
        return next
    }

    /// What somebody who looks finds of the three; of what is removed, how many.
    private func found(_ look: Look, after seconds: Int64) throws -> (names: [String], scene: Scenario) {
        var scene = try scene()
        /// By an observer that asked at the beginning, and had to wait.
        func replays(
            _ behavior: SuspensionBehavior = .coalesce, since begin: () throws -> Void, until end: () throws -> Void
        ) throws -> [String] {
            try scene.observe(one, "Other")
            try begin()
            try scene.observe(one, "", "x", behavior, retained: true)
            let count = scene.names(one).count
            #expect(count == 0, "it has to wait")
            scene.seconds += seconds
            try end()
            let sequences = scene.sequences(one)
            #expect(zip(sequences, sequences.dropFirst()).allSatisfy { $1 == $0 + 1 }, "what is over has no number")
            #expect(scene.losses(one).isEmpty)
            return scene.names(one).filter { $0 != "Other" }
        }
        func wait() { scene.seconds += seconds }
        func observed(_ name: String, _ object: String) throws -> [String] {
            wait()
            try scene.observe(one, name, object, retained: true)
            return scene.names(one)
        }
        /// What is read, without the object.
        func read(_ name: String = "", _ object: String = "") -> [String] {
            scene.values(name, object).map { String($0.prefix { $0 != " " }) }
        }
        let all = ["First", "Short", "Last"]
        let names: [String]
        switch look {
        case .getAny:
            wait()
            names = read()
        case .getByName:
            wait()
            names = all.flatMap { read($0) }
        case .getByObject:
            wait()
            names = read("", "x")
        case .getOne:
            wait()
            names = all.filter { !scene.values($0, "x").isEmpty }
        case .observeAny: names = try observed("", "")
        case .observeByName:
            wait()
            for name in all { try scene.observe(one, name, "", retained: true) }
            names = scene.names(one)
        case .observeByObject: names = try observed("", "x")
        case .observeOne:
            wait()
            for name in all { try scene.observe(one, name, "x", retained: true) }
            names = scene.names(one)
        case .owedStopped:
            names = try replays(since: { try stop(scene) }, until: { scene.goOn(one) })
        case .owedWitnessed:
            // One that has never answered.
            scene.stop(one)
            names = try replays(since: { try stop(scene) }, until: { scene.backlogProbe(one, hasRead: true) })
        case .owedSuspendedHold:
            names = try replays(.hold, since: { try scene.suspend(one) }, until: { try scene.resume(one) })
        case .owedSuspendedCoalesce:
            names = try replays(.coalesce, since: { try scene.suspend(one) }, until: { try scene.resume(one) })
        case .owedFlushed:
            names = try replays(
                .hold, since: { try scene.suspend(one) }, until: { try scene.post("Other", immediately: true) })
        case .follow:
            wait()
            names = try scene.followValues(one).map(\.name)
        case .followFurther:
            let first = try scene.followValues(one, most: 1)
            wait()
            names = first.map(\.name) + (try scene.followValues(one, after: first[0].serial).map(\.name))
        case .removeAny:
            wait()
            let count = scene.forget("")
            names = count == 3 ? all : count == 2 ? ["First", "Last"] : []
        case .removeByName:
            wait()
            names = all.filter { scene.forget($0) == 1 }
        case .removeOne:
            wait()
            names = all.filter { scene.forget($0, "x") == 1 }
        case .removeOneOfPlace:
            wait()
            names = all.filter { scene.forget($0, "x", from: nil) }
        case .restartGet:
            wait()
            scene = restarted(scene)
            names = read()
        case .restartObserve:
            wait()
            scene = restarted(scene)
            try scene.observe(one, "", "", retained: true)
            names = scene.names(one)
        case .restartOwed:
            try scene.observe(one, "Other")
            try scene.suspend(one)
            try scene.observe(one, "", "x", .hold, retained: true)
            wait()
            scene = restarted(scene)
            try scene.resume(one)
            names = scene.names(one)
        }
        try scene.center.checkInvariants()
        return (names, scene)
    }

    /// From now on the client does not read, and its windows are full.
    private func stop(_ scene: Scenario) throws {
        scene.stop(one)
        while scene.status(one)?.flow == .open { try scene.post("Other") }
        scene.clear()
    }

    @Test("R1: a value exists for every kind of access until it expires", arguments: Look.allCases)
    func before(look: Look) throws {
        let (names, scene) = try found(look, after: 9)
        #expect(names == ["First", "Short", "Last"])
        #expect(scene.statistics.expired == 0)
    }

    @Test(
        "R1, R6: an expired value is invisible to every kind of read, and counts once as expired, not as lost",
        arguments: Look.allCases)
    func after(look: Look) throws {
        for seconds in [10, 1000] as [Int64] {
            let (names, scene) = try found(look, after: seconds)
            #expect(names == ["First", "Last"])
            #expect(scene.statistics.expired == 1 && scene.statistics.dropped == 0)
            let count = scene.values().count
            #expect(Int(scene.statistics.retained) == count)
        }
    }

    /// What is bounded of values, and who has the room that one takes.
    enum Room: CaseIterable, Sendable {
        case numberOfPoster, bytesOfPoster, number, bytes

        /// Leaves no room for a third one beside two.
        func fill(_ scene: Scenario) {
            let bytes = scene.statistics.retainedBytes + 600
            switch self {
            case .numberOfPoster: scene.center.limits[.retainedPerClient] = 2
            case .bytesOfPoster: scene.center.limits[.retainedBytesPerClient] = bytes
            case .number: scene.center.limits[.retained] = 2
            case .bytes: scene.center.limits[.retainedBytes] = bytes
            }
        }

        /// Whether the next one is another poster's.
        var isOfAnother: Bool { self == .number || self == .bytes }
    }

    @Test(
        "R6, E4: an expired value takes no space, even before its expiry is noticed", arguments: Room.allCases,
        PostingStyle.allCases)
    func room(room: Room, style: PostingStyle) throws {
        guard style != .atExit || !room.isOfAnother else { return }
        let scene = Scenario()
        func post(_ name: String, expiresAfter: UInt32? = nil, style: PostingStyle = .now, from poster: ClientName)
            throws
        {
            try scene.post(
                name, bytes: 1500, style: style, retention: Retention(), expiresAfter: expiresAfter, from: poster)
        }
        try post("Short", expiresAfter: 10, from: poster)
        try post("Long", from: poster)
        room.fill(scene)
        let next = room.isOfAnother ? one : poster
        scene.seconds += 9
        #expect(throws: CenterError.self) { try post("Next", style: style, from: next) }
        scene.seconds += 1
        try post("Next", style: style, from: next)
        for _ in 0..<4 {
            scene.postQueued(.asap)
            scene.postQueued(.whenIdle)
        }
        if style == .atExit { scene.disappear(next) }
        scene.postQueued(.asap)
        #expect(scene.values() == ["Long", "Next"])
        #expect(scene.statistics.unretained == 0 && scene.statistics.expired == 1)
        try scene.center.checkInvariants()
    }

    @Test(
        "R6: a queued retained post uses the space of a value that has expired when the post is made",
        arguments: Room.allCases)
    func roomFromQueue(room: Room) throws {
        for seconds in [9, 10] as [Int64] {
            let scene = Scenario()
            let next = room.isOfAnother ? one : poster
            // It is within the bounds when it is accepted.
            try scene.post("Next", bytes: 1500, style: .whenIdle, retention: Retention(), from: next)
            try scene.post("Short", bytes: 1500, retention: Retention(), expiresAfter: 10, from: poster)
            try scene.post("Long", bytes: 1500, retention: Retention(), from: poster)
            room.fill(scene)
            scene.seconds += seconds
            scene.postQueued(.whenIdle)
            #expect(scene.statistics.unretained == (seconds == 9 ? 1 : 0))
            #expect(scene.values() == (seconds == 9 ? ["Short", "Long"] : ["Long", "Next"]))
            try scene.center.checkInvariants()
        }
    }
}
