// SPDX-License-Identifier: Apache-2.0
//
// A program of somebody else: with modules of many packages, and names of its own that a library could have, too.
import CGLib
import Carillon
import CarillonMainLoop
import CarillonThreadDelivery
import Collections
import DBus
import Dispatch
import Foundation
import GLib
import JSON
import LocalNotifications
import MainLoop
import NIOCore
import TestSupport

enum Log { static let name = "log" }
struct KeyFile {}
struct Locked<Value> { let value: Value }
struct PropertyList {}
struct Received {}
struct Outbox {}
struct GlobPattern {}
struct Deque {}
final class Weak {}
func printLine(_ line: String) { print(line) }
func printError(_ line: String) {}

printLine("\(Log.name) \(nameOfCollections) \(nameOfGLib) \(nameOfDBus) \(NAME_OF_CGLib) \(Locked(value: 1).value)")

/// Counts on any thread.
final class Count: @unchecked Sendable {
    // Sendable: the number is touched only under the lock.
    private let lock = NSLock()
    private var number = 0

    func add() { lock.withLock { number += 1 } }
    var value: Int { lock.withLock { number } }
}

let center = DistributedNotificationCenter.default
let name = Foundation.Notification.Name("com.example.Guest")
let (onMain, onQueue, onOwn, local) = (Count(), Count(), Count(), Count())
let queue = OperationQueue()
let own = DistributedNotificationCenter(busAddress: ProcessInfo.processInfo.environment["DBUS_SESSION_BUS_ADDRESS"]!)
own.defaultDelivery = .ownQueue

let observations = [
    center.observe(name) { _ in onMain.add() },
    center.observe(name, queue: queue) { note in if note.userInfo?["number"] is Int { onQueue.add() } },
    own.observe(name) { note in if note.object is String { onOwn.add() } },
]
guard center.flush(timeout: 30), own.flush(timeout: 30) else { fatalError("there is no service") }

let here = LocalNotifications.NotificationCenter.default
let heard = here.observe(name, context: .default) { _ in local.add() }

// From many threads at once, with registrations that come and go.
DispatchQueue.global().async {
    DispatchQueue.concurrentPerform(iterations: 4) { thread in
        for number in 0..<500 {
            try? center.post(named: name, object: "o", userInfo: ["number": number, "thread": thread])
            if number % 20 == 0 {
                let passing = center.observe(.init("com.example.Other"), queue: queue) { _ in }
                passing.cancel()
                here.post(name: name, object: nil)
            }
        }
    }
}

let loop = EventLoop()
let timer = EventSource.timer(milliseconds: 20, on: .default) {
    if onMain.value == 2_000, onQueue.value == 2_000, onOwn.value == 2_000, local.value == 100 { loop.quit() }
    return .keep
}
let patience = EventSource.once(milliseconds: 100_000, on: .default) { loop.quit() }
loop.run()
withExtendedLifetime((observations, heard, timer, patience)) {}
print("\(onMain.value) \(onQueue.value) \(onOwn.value) \(local.value)")
