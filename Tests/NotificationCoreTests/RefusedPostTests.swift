// SPDX-License-Identifier: Apache-2.0
import CarillonTestLimits
import Testing

@testable import CarillonCore

/// A post that is over a limit changes nothing: what it would have begun to be did not begin.
@Suite("E1: a refused post changes nothing", .limited)
struct RefusedPostTests {
    /// The limits that a post can be over, each with one that is.
    static let limits: [Limits.Key] = [
        .nameLength, .objectLength, .clients, .retainedPerClient, .retained, .retainedBytesPerClient, .retainedBytes,
        .queuedPostsPerClient, .queuedPostBytesPerClient, .queuedPostBytes,
    ]

    @Test("E1: a refused post creates no client, and is not retained, queued, delivered or logged", arguments: limits)
    func nothing(key: Limits.Key) throws {
        let styles: [PostingStyle] = [.now, .asap, .whenIdle, .atExit]
        var refused = 0
        for style in styles {
            for retention in [nil, Retention(), Retention(whileConnected: true)] {
                let scene = Scenario()
                scene.center.remembersChanges = true
                try scene.observe(one)
                scene.center.limits[key] = key == .clients ? 1 : 0
                let (changes, statistics) = (scene.changes.count, scene.statistics)
                do {
                    try scene.post("Ding", "door", style: style, retention: retention, from: two)
                } catch CenterError.limitExceeded(let found, _) {
                    #expect(found == key)
                    refused += 1
                    #expect(scene.status(two) == nil && scene.watched == [one] && scene.probes[two] == nil)
                    #expect(scene.changes.count == changes)
                    #expect(scene.statistics == statistics)
                    #expect(scene.names(one).isEmpty)
                    try scene.center.checkInvariants()
                }
            }
        }
        #expect(refused > 0)
    }
}
