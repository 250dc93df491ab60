// Observes on RunLoop.main, as programs from macOS do. Nothing here but the import of Carillon is new to them.
//
//   carillon post com.example.Saved --object report.txt bytes=4711
import Carillon
import Foundation

let center = DistributedNotificationCenter.default()

center.addObserver(forName: .init("com.example.Saved"), object: nil, queue: .main) { notification in
    say("saved \(notification.object ?? "") on the main thread: \(Thread.isMainThread)")
}
center.addObserver(forName: .init("com.example.Quit"), object: nil, queue: .main) { _ in exit(0) }

say("observing")
RunLoop.main.run()

/// Prints a line at once, also into a pipe.
func say(_ line: String) {
    print(line)
    fflush(nil)
}
