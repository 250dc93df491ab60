// SPDX-License-Identifier: Apache-2.0
import Carillon
import Foundation

setvbuf(stdout, nil, _IOLBF, 0)
let arguments = CommandLine.arguments.dropFirst()

switch arguments.first {
case "watch":
    // Everything at once, until told to quit.
    let watcher = ThemeWatcher()
    watcher.start { changes, isDark in
        print("theme \(changes) \(isDark) \(Thread.isMainThread)")
    }
    ScreenLockMonitor.shared.onChange = { isLocked, isOnQueue in
        print("screen \(isLocked) \(isOnQueue)")
        if !isLocked { ScreenLockMonitor.shared.stopMonitoring() }
    }
    ScreenLockMonitor.shared.startMonitoring()
    var nowPlaying: NowPlaying?
    nowPlaying = NowPlaying { track in
        print("track \(track.title) \(track.artist ?? "-") \(track.duration) \(track.rating) \(track.isLoved)")
        if track.state == .stopped {
            nowPlaying = nil
            print("stopped \(nowPlaying == nil)")
        }
    }
    let reader = Reader()
    reader.onOpen = { url, window, isRecent in
        print("open \(url.lastPathComponent) \(window) \(isRecent)")
    }
    let sync = PreferencesSync()
    _ = NotificationCenter.default.addObserver(forName: .preferencesChanged, object: nil, queue: nil) { note in
        let values = note.userInfo?["values"] as? [String: Any] ?? [:]
        let sizes = values["sizes"] as? [Int] ?? []
        print("preferences \(values["font"] as? String ?? "-") \(sizes) \(note.userInfo?["version"] as? Int ?? 0)")
    }
    let delegate = AppDelegate()
    DistributedNotificationCenter.default().addObserver(
        forName: Notification.Name("com.example.Reader.activate"), object: nil, queue: .main
    ) { note in
        if note.object as? String == "no" {
            delegate.applicationDidResignActive()
        } else {
            delegate.applicationDidBecomeActive()
        }
        print("suspended \(delegate.center.suspended)")
    }
    DistributedNotificationCenter.default().addObserver(forName: .quit, object: nil, queue: nil) { _ in
        exit(3)
    }
    print("ready \(AppDelegate.checkRawValues())")
    withExtendedLifetime((watcher, reader, sync)) {
        RunLoop.main.run()
    }

case "open":
    // Posts and ends at once.
    SingleInstance.forward(URL(string: "file:///tmp/\(arguments.last!)")!, window: 7)

case "set":
    PreferencesSync().set(["font": arguments.last!, "sizes": [9, 12], "ratio": 1.5])

case "post":
    let center = DistributedNotificationCenter.default()
    center.post(name: Notification.Name(arguments.last!), object: nil)
    center.postNotificationName(Notification.Name(arguments.last!), object: "object")
    center.postNotificationName(
        NSNotification.Name(arguments.last!), object: nil, userInfo: nil, deliverImmediately: false)
    DistributedNotificationCenter.default().postNotificationName(
        .init(arguments.last!), object: nil, userInfo: ["a": [1, "b", true] as [Any]], options: [])
    exit(EXIT_SUCCESS)

default:
    print("watch | open NAME | set FONT | post NAME")
    exit(EXIT_FAILURE)
}
