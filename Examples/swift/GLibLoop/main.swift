// Observes on a GLib main loop, as every GTK program runs one. DispatchQueue.main and @MainActor work as well.
//
//   carillon post com.example.Saved --object report.txt bytes=4711
import Carillon
import Foundation
import MainLoop

let loop = EventLoop()
let center = DistributedNotificationCenter.default()

center.addObserver(forName: .init("com.example.Saved"), object: nil, queue: nil) { notification in
    say("saved \(notification.object ?? "") on the main thread: \(Thread.isMainThread)")
    // Code on the main actor runs between the loop's other work.
    Task { @MainActor in say("the main actor runs, too") }
}
center.addObserver(forName: .init("com.example.Quit"), object: nil, queue: .main) { _ in loop.quit() }

say("observing")
loop.run()

/// Prints a line at once, also into a pipe.
func say(_ line: String) {
    print(line)
    fflush(nil)
}
