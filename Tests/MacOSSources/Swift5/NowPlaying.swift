// SPDX-License-Identifier: Apache-2.0
import Carillon
import Foundation

/// What a music player tells in its userInfo.
struct Track: Equatable {
    enum State: String {
        case playing = "Playing"
        case paused = "Paused"
        case stopped = "Stopped"
    }

    var title: String
    var artist: String?
    var duration: TimeInterval
    var rating: Int
    var isLoved: Bool
    var state: State

    init?(userInfo: [AnyHashable: Any]?) {
        guard let userInfo = userInfo,
            let stateText = userInfo["Player State"] as? String, let state = State(rawValue: stateText),
            let title = userInfo["Name"] as? String
        else { return nil }
        self.title = title
        self.state = state
        artist = userInfo["Artist"] as? String
        duration = ((userInfo["Total Time"] as? NSNumber)?.doubleValue ?? 0) / 1000
        rating = userInfo["Rating"] as? Int ?? 0
        isLoved = (userInfo["Loved"] as? Bool) == true
    }
}

class NowPlaying {
    private var token: NSObjectProtocol!
    var track: Track? {
        didSet { if track != oldValue, let track = track { onTrack(track) } }
    }
    let onTrack: (Track) -> Void

    init(onTrack: @escaping (Track) -> Void) {
        self.onTrack = onTrack
        token = DistributedNotificationCenter.default().addObserver(
            forName: .playerInfo, object: "com.apple.Music.player", queue: OperationQueue.main
        ) { [unowned self] notification in
            self.track = Track(userInfo: notification.userInfo)
        }
    }

    deinit {
        // Common, and fine there: an implicitly unwrapped optional becomes an `Any`.
        DistributedNotificationCenter.default().removeObserver(token as Any, name: .playerInfo, object: nil)
    }
}
