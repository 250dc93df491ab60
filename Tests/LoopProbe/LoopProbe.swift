// SPDX-License-Identifier: Apache-2.0
import Carillon
import CarillonMainLoop
import Foundation

/// Observes in every way there is, on the loop that its argument names, and tells what ran where.
///
///     carillon-loop-probe glib | run-loop | dispatch-main | none
///
/// Or posts much, and ends at once:
///
///     carillon-loop-probe flood
@main
enum LoopProbe {
    static func main() {
        let style = CommandLine.arguments.count > 1 ? CommandLine.arguments[1] : ""
        let center = DistributedNotificationCenter.default()
        if style == "flood" {
            center.exitTimeout = 1
            for number in 0..<130_000 {
                center.postNotificationName(ring, object: nil, userInfo: ["n": number, "text": "some more"])
            }
            return
        }
        let loop = EventLoop()
        let quit = DispatchSemaphore(value: 0)
        if style == "none" { center.defaultDelivery = .ownQueue }
        let hasMainThread = style != "none"

        var observers: [any NSObjectProtocol] = []
        observers.append(
            center.addObserver(forName: ring, object: nil, queue: nil) { notification in
                say("block", "object=\(notification.object as? String ?? "-")")
                if hasMainThread {
                    MainActor.assumeIsolated { say("isolated", "in=block") }
                    DispatchQueue.main.async { say("dispatch") }
                    Task { @MainActor in say("actor") }
                }
            })
        let operations = OperationQueue()
        operations.name = "probe"
        observers.append(
            center.addObserver(forName: ring, object: nil, queue: operations) { _ in
                say("operation", "current=\(OperationQueue.current?.name == "probe")")
            })
        if hasMainThread {
            observers.append(
                center.addObserver(forName: ring, object: nil, queue: .main) { _ in
                    MainActor.assumeIsolated { say("isolated", "in=main") }
                    say("main", "current=\(OperationQueue.current === OperationQueue.main)")
                })
        }
        let bell = Bell()
        center.addObserver(bell, method: Bell.rang, name: ring)
        let mainBell = hasMainThread ? MainActor.assumeIsolated { MainBell() } : nil
        if let mainBell { center.addObserver(mainBell, method: MainBell.rang, name: ring) }
        let notifications = center.notifications(named: ring)
        Task.detached {
            for await notification in notifications {
                say("sequence", "object=\(notification.object as? String ?? "-")")
            }
        }
        let events = center.observeEvents { event in
            if case .connectionStateChanged(let state) = event { say("state", "is=\(state)") }
        }
        // Ends the program in the way of its loop.
        observers.append(
            center.addObserver(forName: .init("com.example.Quit"), object: nil, queue: nil) { _ in
                switch style {
                case "glib": loop.quit()
                case "none": quit.signal()
                default: exit(0)
                }
            })
        print("observing")
        fflush(nil)
        withExtendedLifetime((observers, bell, mainBell, events)) {
            switch style {
            case "glib": loop.run()
            case "run-loop": RunLoop.main.run()
            case "dispatch-main": dispatchMain()
            default: quit.wait()
            }
        }
        print("ended")
    }
}

private let ring = Notification.Name("com.example.Ring")

/// A line with what runs, and where.
private func say(_ what: String, _ more: String = "") {
    print("\(what) thread=\(Thread.isMainThread ? "main" : "other") \(more)")
    fflush(nil)
}

private final class Bell: Sendable {
    func rang(_ notification: Notification) { say("method") }
}

@MainActor
private final class MainBell {
    func rang(_ notification: Notification) { say("main-method") }
}
