// Observes in a program without any loop: its main thread does its own work, and waits for it.
//
//   carillon post com.example.Saved --object report.txt bytes=4711
import Carillon
import Foundation

let center = DistributedNotificationCenter.default()
let quit = DispatchSemaphore(value: 0)

// There is no loop that could run observers on the main thread.
center.defaultDelivery = .ownQueue
center.addObserver(forName: .init("com.example.Saved"), object: nil, queue: nil) { notification in
    say("saved \(notification.object ?? "") on the main thread: \(Thread.isMainThread)")
}
center.addObserver(forName: .init("com.example.Quit"), object: nil, queue: nil) { _ in quit.signal() }

say("observing")
quit.wait()

/// Prints a line at once, also into a pipe.
func say(_ line: String) {
    print(line)
    fflush(nil)
}
