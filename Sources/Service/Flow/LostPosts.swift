// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonCore
import CarillonMainLoop
import CarillonWire

/// Posts for which there was no room (E4), until all whom they would have reached are told.
///
/// They come in rows, mostly of the same name, faster than anything else: what one costs is what a flood costs others.
struct LostPosts {
    private struct Post: Hashable {
        let reach: LostPost.Reach
        let poster: UniqueName

        var size: Int { 128 + reach.byteCount }
    }

    /// Those since ``collect()``, and those of them that were lost last, which are not among these yet.
    private var counts: [Post: UInt64] = [:]
    /// Their size, in bytes, roughly.
    private var bytesOfCounts = 0
    /// That of one that is to be announced, on the average.
    private var bytesOfUnreported = 0
    private var last: Post?
    private var countOfLast: UInt64 = 0
    /// The last one, where it came alone, and how many observers had ever been registered: one that came since may be reached.
    private var lastOutline: (outline: PostOutline, registered: UInt64)?
    /// Those that the core is to be told of, which takes them out.
    var unreportedLoss: [LostPost] = []
    private var logged = Log.Throttle<UniqueName>()

    /// The size of all, in bytes, roughly.
    var byteCount: Int { bytesOfCounts + unreportedLoss.count * bytesOfUnreported }

    var isEmpty: Bool { counts.isEmpty && last == nil && unreportedLoss.isEmpty }

    /// Adds one that came alone if the last one did and was the same.
    ///
    /// - Parameter registered: how many observers have ever been registered.
    /// - Returns: whether it was.
    mutating func addAgain(_ outline: PostOutline, from poster: UniqueName, registered: UInt64) -> Bool {
        guard let lastOutline, lastOutline.registered == registered, lastOutline.outline == outline,
            last?.poster == poster
        else { return false }
        countOfLast += 1
        return true
    }

    /// Adds one that came alone.
    ///
    /// - Parameter registered: as for ``addAgain(_:from:registered:)``.
    mutating func add(
        _ outline: PostOutline, from poster: UniqueName, reaching reach: LostPost.Reach, registered: UInt64
    ) {
        add(1, from: poster, reaching: reach)
        lastOutline = (outline, registered)
    }

    /// Adds some that came with others.
    mutating func add(_ count: UInt64, from poster: UniqueName, reaching reach: LostPost.Reach) {
        lastOutline = nil
        if let last, last.reach == reach, last.poster == poster {
            countOfLast += count
            return
        }
        addLast()
        last = Post(reach: reach, poster: poster)
        countOfLast = count
    }

    private mutating func addLast() {
        if let last, counts.updateValue((counts[last] ?? 0) + countOfLast, forKey: last) == nil {
            bytesOfCounts += last.size
        }
        (last, countOfLast, lastOutline) = (nil, 0, nil)
    }

    /// Has all that was added announced, when what was collected before has been: what is lost again and again meanwhile
    /// is one.
    ///
    /// - Parameter tell: gets the posters with the numbers of their posts.
    mutating func collect(_ tell: (UniqueName, UInt64) -> Void = { _, _ in }) {
        guard unreportedLoss.isEmpty else { return }
        addLast()
        guard !counts.isEmpty else { return }
        bytesOfUnreported = bytesOfCounts / counts.count
        defer { (counts, bytesOfCounts) = ([:], 0) }
        #if CARILLON_PLANTED
            if PlantedFault.strikes(.silentOverload) { return }
        #endif
        unreportedLoss += counts.map { post, count in
            LostPost(count, reaching: post.reach, from: post.poster)
        }
        for (post, count) in counts { tell(post.poster, count) }
        var lost = counts.values.reduce(0, +)
        for poster in counts.keys.lazy.map(\.poster) {
            let count = logged.note(poster, times: lost)
            lost = 0
            guard let count else { continue }
            Log.warning(
                "posts come faster than they can be served, some of them from \(poster): \(count) are lost so far, of all",
                ["CARILLON_CLIENT": poster.rawValue, "CARILLON_REASON": DropReason.overload.rawValue])
        }
    }
}
