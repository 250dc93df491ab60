// SPDX-License-Identifier: Apache-2.0
import CarillonTestLimits
import CarillonTestSupport
import Foundation
import Testing

@testable import CarillonMainLoop

/// Work that may block, beside a loop.
@Suite("E4: blocking work beside a main loop", .limited)
struct BlockingWorkTests {
    /// Something that does not return before it is told to.
    private final class Obstacle: Sendable {
        private let semaphore = DispatchSemaphore(value: 0)

        func wait() { semaphore.wait() }
        func end() { semaphore.signal() }
    }

    private final class Results {
        var values: [Int?] = []
    }

    @Test("Work runs on another thread, and its results arrive from the loop in the order of the work")
    func order() throws {
        let context = MainContext()
        let work = BlockingWork(on: context, priority: .default, bound: 60_000)
        let results = Results()
        let own = pthread_self()
        for number in 0..<20 {
            work.run {
                pthread_equal(pthread_self(), own) == 0 ? number : -1
            } then: {
                results.values.append($0)
            }
        }
        #expect(results.values.isEmpty)
        try context.run("all work is done") { results.values.count == 20 }
        #expect(results.values == Array(0..<20))
        #expect(work.isIdle && work.stuckCount == 0)
    }

    @Test("Work that does not return is given up, later work runs, and its thread counts as stuck until it returns")
    func stuck() throws {
        let context = MainContext()
        let work = BlockingWork(on: context, priority: .default, bound: 20)
        let (results, obstacle) = (Results(), Obstacle())
        for number in 0..<2 {
            work.run {
                obstacle.wait()
                return number
            } then: {
                results.values.append($0)
            }
        }
        try context.run("it is given up") { results.values.count == 2 }
        #expect(results.values == [nil, nil])
        try Self.run(work, 2, on: context, results)
        #expect(work.stuckCount >= 2)
        obstacle.end()
        obstacle.end()
        try context.run("the threads have ended") { work.stuckCount == 0 }
        #expect(results.values.prefix(2) == [nil, nil], "a result that comes too late is nobody's")
    }

    @Test("New work is given up while the maximum number of threads is stuck, and runs again afterwards")
    func allStuck() throws {
        let context = MainContext()
        let work = BlockingWork(on: context, priority: .default, bound: 10)
        let (results, obstacle) = (Results(), Obstacle())
        for _ in 0..<BlockingWork.maxStuck {
            work.run {
                obstacle.wait()
                return 0
            } then: {
                results.values.append($0)
            }
        }
        try context.run("all are stuck") { results.values.count == BlockingWork.maxStuck }
        work.run {
            7
        } then: {
            results.values.append($0)
        }
        #expect(results.values.count == BlockingWork.maxStuck, "it is told later")
        try context.run("it is given up") { results.values.count == BlockingWork.maxStuck + 1 }
        #expect(results.values.allSatisfy { $0 == nil })
        for _ in 0..<BlockingWork.maxStuck { obstacle.end() }
        try context.run("the threads have ended") { work.stuckCount == 0 }
        try Self.run(work, 8, on: context, results)
    }

    /// Has work done that ends at once. On a busy machine it may be given up as well, and is asked for again.
    private static func run(_ work: BlockingWork, _ value: Int, on context: MainContext, _ results: Results) throws {
        while results.values.last != value {
            let count = results.values.count
            work.run {
                value
            } then: {
                results.values.append($0)
            }
            try context.run("it is done or given up") { results.values.count > count }
        }
    }

    @Test("A released BlockingWork object delivers no results")
    func gone() {
        let context = MainContext()
        let results = Results()
        var work: BlockingWork? = BlockingWork(on: context, priority: .default)
        work?.run {
            1
        } then: {
            results.values.append($0)
        }
        work = nil
        letPass(.milliseconds(20), because: "the work is done by then, and its result is nobody's")
        for _ in 0..<100 { context.iterate(mayBlock: false) }
        #expect(results.values.isEmpty)
    }
}
