import NotificationCore

/// What posters have queued (Q7), as one list in the order of arrival.
struct ModelPosters {
    struct Queued {
        let post: Post
        var immediately: Bool
        var style: PostingStyle

        var bytes: Int { ModelClient.bytes(of: post) }
    }

    private(set) var queued: [Queued] = []
    /// The posters whose turn comes, for each style.
    private var lines: [PostingStyle: [Int]] = [.asap: [], .whenIdle: []]

    var bytes: Int { queued.reduce(0) { $0 + $1.bytes } }

    private static func isSimilar(_ one: Queued, _ other: Post, _ coalescing: Set<CoalescingKey>) -> Bool {
        !coalescing.isEmpty && one.post.poster == other.poster
            && (!coalescing.contains(.name) || one.post.name == other.name)
            && (!coalescing.contains(.object) || one.post.object == other.object)
    }

    func check(_ new: Queued, _ coalescing: Set<CoalescingKey>, _ limits: Limits) throws(CenterError) {
        let rest = queued.filter { !Self.isSimilar($0, new.post, coalescing) } + [new]
        let own = rest.filter { $0.post.poster == new.post.poster }
        try limits.check(.queuedPostsPerClient, own.count)
        try limits.check(.queuedPostBytesPerClient, own.reduce(0) { $0 + $1.bytes })
        let all = rest.reduce(0) { $0 + $1.bytes }
        try limits.check(.queuedPostBytes, all)
        // E4: of what is added, nobody gets more than seven times what is left to others.
        let limit = limits[.queuedPostBytes]
        if limit >= 64, all > bytes, own.reduce(0, { $0 + $1.bytes }) > 7 * (Int(limit) - all) {
            throw .shareExceeded(.queuedPostBytes, value: limit)
        }
    }

    mutating func removeSimilar(to post: Post, _ coalescing: Set<CoalescingKey>) -> [Queued] {
        let similar = queued.filter { Self.isSimilar($0, post, coalescing) }
        queued.removeAll { Self.isSimilar($0, post, coalescing) }
        forget(post.poster)
        return similar
    }

    /// Q3: the newest post, at the tail, with the more urgent style; and immediately if one of them was.
    mutating func queue(_ new: Queued, _ coalescing: Set<CoalescingKey>) -> Int {
        let replaced = removeSimilar(to: new.post, coalescing)
        var new = new
        if replaced.contains(where: { $0.style == .asap }) { new.style = .asap }
        if replaced.contains(where: \.immediately) { new.immediately = true }
        queued.append(new)
        if !lines[new.style]!.contains(new.post.poster) { lines[new.style]!.append(new.post.poster) }
        return replaced.count
    }

    /// The first of the poster whose turn it is.
    mutating func take(_ style: PostingStyle) -> Queued? {
        while let poster = lines[style]!.first {
            lines[style]!.removeFirst()
            guard let first = queued.firstIndex(where: { $0.post.poster == poster && $0.style == style }) else {
                continue
            }
            let taken = queued.remove(at: first)
            if queued.contains(where: { $0.post.poster == poster && $0.style == style }) {
                lines[style]!.append(poster)
            }
            forget(poster)
            return taken
        }
        return nil
    }

    private mutating func forget(_ poster: Int) {
        guard !queued.contains(where: { $0.post.poster == poster }) else { return }
        for style in lines.keys { lines[style]!.removeAll { $0 == poster } }
    }

    /// A log that was written anew does not hold whose turn it was.
    mutating func beginAnew() {
        for style in lines.keys {
            lines[style] = []
            for one in queued where one.style == style && !lines[style]!.contains(one.post.poster) {
                lines[style]!.append(one.post.poster)
            }
        }
    }
}
