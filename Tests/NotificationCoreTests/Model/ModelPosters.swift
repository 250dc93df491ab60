// SPDX-License-Identifier: Apache-2.0
import CarillonCore

/// What posters have queued (Q7), as one list in the order of arrival.
struct ModelPosters {
    struct Queued {
        let post: Post
        var immediately: Bool
        var style: PostingStyle

        var bytes: Int { ModelClient.queuedBytes(of: post) }
    }

    private(set) var queued: [Queued] = []
    /// The posters whose turn comes, for each style.
    private var lines: [PostingStyle: [Int]] = [.asap: [], .whenIdle: []]

    private var excess = ModelExcess(.queuedPostBytes)

    var bytes: Int { queued.reduce(0) { $0 + $1.bytes } }

    private var bytesByPoster: [Int: Int] {
        queued.reduce(into: [:]) { $0[$1.post.poster, default: 0] += $1.bytes }
    }

    mutating func findExcess(_ limits: Limits, restarted: Bool = false) {
        excess.find(bytesByPoster, limits, restarted: restarted)
    }

    /// Call behind each step.
    mutating func settle() { excess.settle(bytesByPoster) }

    /// R4: what waits for an exit takes the place of nothing else.
    private static func isSimilar(
        _ one: Queued, _ other: Post, _ style: PostingStyle, _ coalescing: Set<CoalescingKey>
    ) -> Bool {
        !coalescing.isEmpty && one.post.poster == other.poster && (style != .atExit || one.style == .atExit)
            && (!coalescing.contains(.name) || one.post.name == other.name)
            && (!coalescing.contains(.object) || one.post.object == other.object)
    }

    func check(_ new: Queued, _ coalescing: Set<CoalescingKey>, _ limits: Limits) throws(CenterError) {
        let rest = queued.filter { !Self.isSimilar($0, new.post, new.style, coalescing) } + [new]
        let own = rest.filter { $0.post.poster == new.post.poster }
        try limits.check(.queuedPostsPerClient, own.count)
        try limits.check(.queuedPostBytesPerClient, own.reduce(0) { $0 + $1.bytes })
        let all = bytesByPoster
        let poster = new.post.poster
        try excess.check(own.reduce(0) { $0 + $1.bytes } - all[poster, default: 0], of: poster, all, limits)
    }

    mutating func removeSimilar(
        to post: Post, _ style: PostingStyle, _ coalescing: Set<CoalescingKey>
    ) -> [Queued] {
        remove(of: post.poster) { Self.isSimilar($0, post, style, coalescing) }
    }

    /// Q3: what is posted no more.
    mutating func withdraw(of poster: Int, name: Int, object: Int) -> Int {
        remove(of: poster) { one in
            one.post.poster == poster && (name == 0 || one.post.name == name)
                && (object == 0 || one.post.object == object)
        }.count
    }

    private mutating func remove(of poster: Int, where isRemoved: (Queued) -> Bool) -> [Queued] {
        let removed = queued.filter(isRemoved)
        queued.removeAll(where: isRemoved)
        forget(poster)
        return removed
    }

    /// R4: the poster has left, so what waited for that goes as soon as possible, behind what else is to.
    mutating func release(_ poster: Int) {
        let released = remove(of: poster) { $0.post.poster == poster && $0.style == .atExit }
        for var one in released {
            one.style = .asap
            append(one)
        }
    }

    private mutating func append(_ new: Queued) {
        queued.append(new)
        guard new.style != .atExit, !lines[new.style]!.contains(new.post.poster) else { return }
        lines[new.style]!.append(new.post.poster)
    }

    /// Q3: the newest post, at the tail, with the more urgent style; and immediately if one of them was.
    mutating func queue(_ new: Queued, _ coalescing: Set<CoalescingKey>) -> Int {
        let replaced = removeSimilar(to: new.post, new.style, coalescing)
        var new = new
        if replaced.contains(where: { $0.style == .asap }) { new.style = .asap }
        if replaced.contains(where: \.immediately) { new.immediately = true }
        append(new)
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
        guard !queued.contains(where: { $0.post.poster == poster && $0.style != .atExit }) else { return }
        for style in lines.keys { lines[style]!.removeAll { $0 == poster } }
    }

    /// A log that was written anew does not hold whose turn it was: of each style it has what one poster has, and then what
    /// the next one has.
    mutating func beginAnew() {
        for style in lines.keys {
            lines[style] = []
            for one in queued where one.style == style && !lines[style]!.contains(one.post.poster) {
                lines[style]!.append(one.post.poster)
            }
        }
        queued =
            [PostingStyle.asap, .whenIdle].flatMap { style in
                lines[style]!.flatMap { poster in queued.filter { $0.post.poster == poster && $0.style == style } }
            } + queued.filter { $0.style == .atExit }
    }
}
