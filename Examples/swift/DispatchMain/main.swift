// Observes in a program that lives in dispatchMain(): typed messages, on the main queue.
//
//   carillon post com.example.Saved path=report.txt bytes=4711
import Carillon
import Foundation

struct Saved: DistributedMessage {
    static let name = Notification.Name("com.example.Saved")
    var path: String
    var bytes: Int
}

let center = DistributedNotificationCenter.default()

let observation = center.observe(Saved.self) { saved in
    dispatchPrecondition(condition: .onQueue(.main))
    say("saved \(saved.path) with \(saved.bytes) bytes")
}
center.addObserver(forName: .init("com.example.Quit"), object: nil, queue: .main) { _ in exit(0) }

say("observing")
dispatchMain()

/// Prints a line at once, also into a pipe.
func say(_ line: String) {
    print(line)
    fflush(nil)
}
