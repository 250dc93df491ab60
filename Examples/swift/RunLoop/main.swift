// SPDX-License-Identifier: Apache-2.0
//
// carillon-example-run-loop [NAME]: prints what is posted under a name, in a program that runs RunLoop.main, as those from macOS do.
import Carillon
import Foundation

let name = CommandLine.arguments.dropFirst().first ?? "com.example.Saved"
let center = DistributedNotificationCenter.default()

let events = center.observeEvents { event in
    switch event {
    case .connectionStateChanged(.connected):
        // The first service, or another one: the library has registered us anew, and now that is through.
        if center.flush(timeout: 10) { say("observing \(name)") }
    case .connectionStateChanged(.disconnected): exit(1)  // The session has ended; the library's log says so.
    case .mayHaveMissedNotifications(.dropped(let count, let reason)): say("lost \(count) (\(reason))")
    default: break
    }
}
let observation = center.observe(.init(name), retained: true) { notification in
    let userInfo = (notification.userInfo ?? [:]).map { "\($0.key)=\($0.value)" }.sorted()
    say(([name, notification.object as? String ?? ""] + userInfo).joined(separator: " "))
}
RunLoop.main.run()

/// Prints a line at once, also into a pipe.
@Sendable func say(_ line: String) {
    print(line)
    fflush(nil)
}
