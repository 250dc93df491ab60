// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonDBus
import CarillonWire
import Testing

/// Posts that are refused, with the reason, and posts that are accepted: what has to be the same by every
/// ``WayOfPosting``. A rule about posts is a row here.
enum PostTrials {
    /// Who posts.
    enum Poster: CaseIterable, Sendable {
        /// A process of the session.
        case session
        /// An application in a sandbox, `org.example.Boxed`, which has no list.
        case sandbox
        /// One in a sandbox that has a list with all names, `org.example.Trusted`.
        case trustedSandbox
        /// A program of the session that has a list, `org.example.Listed`.
        case listed
        /// One of the session that has a list with all names, `org.example.Free`.
        case free
        /// A process of which nothing tells whose it is, where sandboxes are.
        case hidden
        /// A connection that left before anybody knew whose it was, where sandboxes are.
        case gone

        var process: ServiceStage.Process? {
            switch self {
            case .session: .init()
            case .sandbox: .init(confinement: .sandbox("org.example.Boxed"))
            case .trustedSandbox: .init(confinement: .sandbox("org.example.Trusted"))
            case .listed: .init(unit: "app-org.example.Listed-1.scope")
            case .free: .init(unit: "app-org.example.Free-1.scope")
            case .hidden: .init(confinement: .unknown)
            case .gone: nil
            }
        }
    }

    /// A post that is refused.
    struct Refusal: Sendable, CustomTestStringConvertible {
        let what: String
        var by = Poster.session
        var post: RawPost
        /// One limit, made so narrow that the post is over it.
        var limit: (key: Limits.Key, value: UInt64)?
        let error: CenterErrorName
        /// What the words of the error have.
        var words: String?
        /// By which ways it can come about.
        var ways = WayOfPosting.allCases

        var testDescription: String { "\(what), by \(by)" }
    }

    private static func option(_ key: String, _ value: some BasicType & Sendable) -> RawPost.Entries {
        { $0.entry(key, value) }
    }

    private static func options(_ all: RawPost.Entries...) -> RawPost.Entries {
        { writer in for one in all { one(&writer) } }
    }

    private static func post(_ name: String = "Ding", _ options: RawPost.Entries...) -> RawPost {
        RawPost(name: name, options: { writer in for one in options { one(&writer) } })
    }

    /// Those that are refused to everybody, for what they are.
    static let malformed: [Refusal] = [
        Refusal(what: "no name", post: post(""), error: .invalidName),
        Refusal(what: "no name", by: .sandbox, post: post(""), error: .invalidName),
        Refusal(what: "no name", by: .listed, post: post(""), error: .invalidName),
        Refusal(
            what: "a value that is no property list",
            post: RawPost(userInfo: { writer in
                writer.dictEntry { writer in
                    writer.append("door")
                    writer.variant(of: "(s)") { writer in writer.structure { $0.append("x") } }
                }
            }), error: .invalidUserInfo, words: "door"),
        Refusal(
            what: "an unknown option", post: post("Ding", option("slip", true)), error: .invalidOption, words: "slip"),
        Refusal(
            what: "an option of another type", post: post("Ding", option("retain", "yes")), error: .invalidOption,
            words: "retain"),
        Refusal(
            what: "an unknown style", post: post("Ding", option("posting-style", "later")), error: .invalidOption,
            words: "posting-style"),
        Refusal(
            what: "a value for no time", post: post("Ding", option("retain", true), option("expires-after", UInt32(0))),
            error: .invalidOption, words: "expires-after"),
        Refusal(
            what: "with its poster, and not kept", post: post("Ding", option("while-connected", true)),
            error: .invalidOption, words: "while-connected"),
        Refusal(what: "an empty host", post: post("Ding", option("host", "")), error: .invalidOption, words: "host"),
        Refusal(
            what: "a user that is too long", post: post("Ding", option("user", String(repeating: "u", count: 256))),
            error: .invalidOption, words: "user"),
        Refusal(
            what: "from elsewhere, and to all sessions",
            post: post("Ding", option("host", "alpha"), option("all-sessions", true)), error: .invalidOption,
            words: "all-sessions"),
        Refusal(
            what: "the same as another one, of nobody's session",
            post: post("Ding", option("host", "alpha"), option("same-as", "1/2/3")), error: .invalidOption,
            words: "same-as"),
        Refusal(
            what: "the same as another one, later",
            post: post("Ding", option("user", "ann"), option("same-as", "1/2/3"), option("posting-style", "asap")),
            error: .invalidOption, words: "same-as"),
        Refusal(
            what: "an identity that is too long",
            post: post("Ding", option("user", "ann"), option("same-as", String(repeating: "1", count: 65))),
            error: .invalidOption, words: "same-as"),
    ]

    /// Ways that make nobody a client: who has a channel is one.
    private static let withoutClient = WayOfPosting.allCases.filter { $0 != .channel }

    /// Those that are over a limit.
    static let tooMuch: [Refusal] = [
        Refusal(
            what: "a long name", post: post("Ding"), limit: (.nameLength, 3), error: .limitExceeded,
            words: "name-length"),
        Refusal(
            what: "a long object", post: RawPost(object: "door"), limit: (.objectLength, 3), error: .limitExceeded,
            words: "object-length"),
        Refusal(
            what: "much userInfo", post: RawPost(userInfo: option("text", String(repeating: "x", count: 9000))),
            limit: (.userInfoBytes, 64), error: .limitExceeded, words: "user-info-bytes"),
        Refusal(
            what: "deep userInfo",
            post: RawPost(userInfo: { writer in
                writer.dictEntry { writer in
                    writer.append("list")
                    writer.variant(of: "as") { writer in writer.array(of: "s") { $0.append("x") } }
                }
            }), limit: (.userInfoDepth, 0), error: .limitExceeded, words: "user-info-depth"),
        Refusal(
            what: "a value", post: post("Ding", option("retain", true)), limit: (.retainedPerClient, 0),
            error: .limitExceeded, words: "retained-per-client"),
        Refusal(
            what: "a value", post: post("Ding", option("retain", true)), limit: (.retained, 0), error: .limitExceeded,
            words: "retained "),
        Refusal(
            what: "a large value", post: post("Ding", option("retain", true)), limit: (.retainedBytesPerClient, 10),
            error: .limitExceeded, words: "retained-bytes-per-client"),
        Refusal(
            what: "a large value", post: post("Ding", option("retain", true)), limit: (.retainedBytes, 10),
            error: .limitExceeded, words: "retained-bytes "),
        Refusal(
            what: "one that waits", post: post("Ding", option("posting-style", "at-exit")),
            limit: (.queuedPostsPerClient, 0), error: .limitExceeded, words: "queued-posts-per-client"),
        Refusal(
            what: "a large one that waits", post: post("Ding", option("posting-style", "when-idle")),
            limit: (.queuedPostBytesPerClient, 10), error: .limitExceeded, words: "queued-post-bytes-per-client"),
        Refusal(
            what: "a large one that waits", post: post("Ding", option("posting-style", "asap")),
            limit: (.queuedPostBytes, 10), error: .limitExceeded, words: "queued-post-bytes "),
        Refusal(
            what: "a new client's last will", post: post("Ding", option("posting-style", "at-exit")),
            limit: (.clients, 1),
            error: .limitExceeded, words: "clients", ways: withoutClient),
        Refusal(
            what: "a value of a new client, with it",
            post: post("Ding", option("retain", true), option("while-connected", true)), limit: (.clients, 1),
            error: .limitExceeded, words: "clients", ways: withoutClient),
    ]

    /// Those that policy refuses, and that nothing else is wrong with.
    static let forbidden: [Refusal] =
        [
            ("org.example.Boxed", Poster.sandbox), ("org.example.Listed", .listed),
            ("org.example.Boxed", .hidden),
        ].flatMap { id, poster in
            // A name that is not its own: neither another, nor one that only begins like its id.
            ["Ding", "\(id)Ding", "\(id.dropLast())", "org.example.Open", "org.example.Opener.Ding"].map { name in
                Refusal(
                    what: "the name '\(name)'", by: poster, post: post(name), error: .notAllowed, words: "may not post")
            }
        }
        + [Poster.sandbox, .trustedSandbox, .listed, .hidden].flatMap { poster in
            // Of a name that it may post.
            [
                Refusal(
                    what: "a host", by: poster, post: post("org.example.Open.Ding", option("host", "alpha")),
                    error: .notAllowed, words: "outside origin"),
                Refusal(
                    what: "a user", by: poster, post: post("org.example.Open.Ding", option("user", "anna")),
                    error: .notAllowed, words: "outside origin"),
                Refusal(
                    what: "a host and a user, kept", by: poster,
                    post: post(
                        "org.example.Open.Ding",
                        options(option("retain", true), option("host", "alpha"), option("user", "anna"))),
                    error: .notAllowed, words: "outside origin"),
            ]
        }
        + [Poster.sandbox, .trustedSandbox, .hidden].flatMap { poster in
            [
                Refusal(
                    what: "to all sessions", by: poster,
                    post: post("org.example.Open.Out", option("all-sessions", true)),
                    error: .notAllowed, words: "may not post to all sessions"),
                Refusal(
                    what: "to all sessions at its exit", by: poster,
                    post: post(
                        "org.example.Open.Out",
                        options(option("posting-style", "at-exit"), option("all-sessions", true))),
                    error: .notAllowed, words: "may not post to all sessions"),
            ]
        }
        + [Poster.session, .free].map { poster in
            Refusal(
                what: "to all sessions, a name that export has not", by: poster,
                post: post("org.example.Open.In", option("all-sessions", true)), error: .notAllowed, words: "export")
        }

    /// Those of a connection that left at once, which has no channel.
    static let ofGone = [
        Refusal(
            what: "the name 'Ding'", by: .gone, post: post("Ding"), error: .notAllowed, words: "may not post",
            ways: withoutClient),
        Refusal(
            what: "a host", by: .gone, post: post("org.example.Open.Ding", option("host", "alpha")),
            error: .notAllowed, words: "outside origin", ways: withoutClient),
        Refusal(
            what: "to all sessions", by: .gone, post: post("org.example.Open.Out", option("all-sessions", true)),
            error: .notAllowed, words: "may not post to all sessions", ways: withoutClient),
    ]

    /// A refusal by one way.
    struct Trial: Sendable, CustomTestStringConvertible {
        let way: WayOfPosting
        let refusal: Refusal

        var testDescription: String { "\(way): \(refusal.testDescription)" }
    }

    static let refused = (malformed + tooMuch + forbidden + ofGone).flatMap { refusal in
        refusal.ways.map { Trial(way: $0, refusal: refusal) }
    }

    /// A post that is accepted, beside those that are refused.
    struct Acceptance: Sendable, CustomTestStringConvertible {
        let what: String
        let by: Poster
        let post: RawPost
        var origin: OutsideOrigin?
        var goesOut = false

        var testDescription: String { "\(what), by \(by)" }
    }

    static let accepted: [Acceptance] =
        [
            ("org.example.Boxed", Poster.sandbox), ("org.example.Listed", .listed),
        ].flatMap { id, poster in
            [id, "\(id).Ding"].map { Acceptance(what: "the name '\($0)'", by: poster, post: post($0)) }
        }
        + Poster.allCases.filter { $0 != .gone }.map {
            Acceptance(what: "an open name", by: $0, post: post("org.example.Open.Ding"))
        }
        + [Poster.session, .free, .trustedSandbox].map {
            Acceptance(what: "any name", by: $0, post: post("Ding"))
        }
        + [Poster.session, .free].flatMap { poster in
            [
                Acceptance(
                    what: "a host and a user", by: poster,
                    post: post("Ding", option("host", "alpha"), option("user", "anna")),
                    origin: try? OutsideOrigin(host: "alpha", user: "anna")),
                Acceptance(
                    what: "to all sessions", by: poster,
                    post: post("org.example.Open.Out", option("all-sessions", true)),
                    goesOut: true),
            ]
        } + [
            Acceptance(what: "a name of its list", by: .listed, post: post("Listed")),
            Acceptance(
                what: "to all sessions, a name of its list", by: .listed,
                post: post("org.example.Open.Out", option("all-sessions", true)), goesOut: true),
        ]
}
