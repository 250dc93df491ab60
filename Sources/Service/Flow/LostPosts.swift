// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonCore
import CarillonMainLoop
import CarillonWire

/// Posts that exceeded the quota of waiting calls (E4), until all clients that they would have reached are informed.
///
/// Lost posts arrive in rows, mostly with the same name, faster than any other input. The cost of one lost post is
/// therefore the cost of a flood to other clients.
struct LostPosts {
    private struct Post: Hashable {
        let reach: LostPost.Reach
        let poster: UniqueName

        var size: Int { 128 + reach.byteCount }
    }

    /// The lost posts since ``collect(_:)``, without the latest row, which is in `last`.
    private var counts: [Post: UInt64] = [:]
    /// The approximate size of `counts`, in bytes.
    private var bytesOfCounts = 0
    /// The average size of an unreported loss, in bytes.
    private var bytesOfUnreported = 0
    private var last: Post?
    private var countOfLast: UInt64 = 0
    /// The last post, if it arrived in a call of its own, and the number of observers that had ever been registered by
    /// then. A later observer may change the reach of the post.
    private var lastOutline: (outline: PostOutline, registered: UInt64)?
    /// The losses for the core, which removes the losses that it has announced.
    var unreportedLoss: [LostPost] = []
    private var logged = Log.Throttle<UniqueName>()

    /// The approximate size of all losses, in bytes.
    var byteCount: Int { bytesOfCounts + unreportedLoss.count * bytesOfUnreported }

    var isEmpty: Bool { counts.isEmpty && last == nil && unreportedLoss.isEmpty }

    /// Counts a post that arrived in a call of its own, if it is equal to the previous such post.
    ///
    /// - Parameters:
    ///   - outline: the name, object and options of the post.
    ///   - poster: the connection that posted it.
    ///   - registered: the number of observers that have ever been registered.
    /// - Returns: whether the post was equal and has been counted.
    mutating func addAgain(_ outline: PostOutline, from poster: UniqueName, registered: UInt64) -> Bool {
        guard let lastOutline, lastOutline.registered == registered, lastOutline.outline == outline,
            last?.poster == poster
        else { return false }
        countOfLast += 1
        return true
    }

    /// Counts a post that arrived in a call of its own.
    ///
    /// - Parameter registered: as for ``addAgain(_:from:registered:)``.
    mutating func add(
        _ outline: PostOutline, from poster: UniqueName, reaching reach: LostPost.Reach, registered: UInt64
    ) {
        add(1, from: poster, reaching: reach)
        lastOutline = (outline, registered)
    }

    /// Counts posts that arrived together in one call.
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

    /// Moves all counted losses to ``unreportedLoss``, once the earlier ones have been announced. Until then equal
    /// losses are merged.
    ///
    /// - Parameter tell: called for each loss with the poster and the number of posts.
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
                "overload: \(count) posts are lost so far, of all posters, some of them from \(poster)",
                ["CARILLON_CLIENT": poster.rawValue, "CARILLON_REASON": DropReason.overload.rawValue])
        }
    }
}
