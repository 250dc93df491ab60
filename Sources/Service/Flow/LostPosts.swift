// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonCore
import CarillonMainLoop
import CarillonWire

/// The posts that ``CallQueue`` has lost because the quota of waiting calls was used up, as counts (E4). They stay here
/// until the core has reported them to all clients that they would have reached.
///
/// Posts with the same poster and reach are one entry with a count. A reach is the name, the object and
/// `deliver-immediately` of a post, which select its receivers; all unobserved names count as one.
///
/// In a flood, lost posts arrive faster than any other input, and consecutive ones mostly have the same name. Therefore
/// the latest entry is kept apart from the dictionary, and a post equal to the previous one only increments its count.
struct LostPosts {
    /// The key of an entry.
    private struct Post: Hashable {
        let reach: LostPost.Reach
        let poster: UniqueName

        /// The approximate memory of an entry, in bytes.
        var size: Int { 128 + reach.byteCount }
    }

    /// The numbers of lost posts since the last ``collect(_:)``, without the latest entry.
    private var counts: [Post: UInt64] = [:]
    /// The approximate size of `counts`, in bytes.
    private var bytesOfCounts = 0
    /// The average size of an entry of ``unreportedLoss``, in bytes.
    private var bytesOfUnreported = 0
    /// The latest entry, and its count.
    private var last: Post?
    private var countOfLast: UInt64 = 0
    /// The last post, if it arrived in a call of its own, and the number of observers that had ever been registered by
    /// then. A later observer may change the reach of an equal post.
    private var lastOutline: (outline: PostOutline, registered: UInt64)?
    /// The losses that are being reported. The core removes the reported ones.
    var unreportedLoss: [LostPost] = []
    /// The throttle of the log messages about losses.
    private var logged = Log.Throttle<UniqueName>()

    /// The approximate size of all losses, in bytes.
    var byteCount: Int { bytesOfCounts + unreportedLoss.count * bytesOfUnreported }

    /// Whether all losses have been reported.
    var isEmpty: Bool { counts.isEmpty && last == nil && unreportedLoss.isEmpty }

    /// Counts a post that arrived in a call of its own, if it is equal to the previous lost post. Its reach need not be
    /// determined again.
    ///
    /// - Parameters:
    ///   - outline: the name, the object and `deliver-immediately` of the post.
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

    /// Moves the latest entry to the dictionary.
    private mutating func addLast() {
        if let last, counts.updateValue((counts[last] ?? 0) + countOfLast, forKey: last) == nil {
            bytesOfCounts += last.size
        }
        (last, countOfLast, lastOutline) = (nil, 0, nil)
    }

    /// Moves all entries to ``unreportedLoss``, and logs them, if all earlier ones have been reported. Until then new
    /// losses are counted only.
    ///
    /// - Parameter tell: called for each entry with the poster and the number of posts.
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
            // The log counts the losses of all posters together, so the sum is added with the first poster only.
            lost = 0
            guard let count else { continue }
            Log.warning(
                "overload: \(count) posts are lost so far, of all posters, some of them from \(poster)",
                ["CARILLON_CLIENT": poster.rawValue, "CARILLON_REASON": DropReason.overload.rawValue])
        }
    }
}
