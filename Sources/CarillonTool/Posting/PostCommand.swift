// SPDX-License-Identifier: Apache-2.0
import CarillonClient
import CarillonCore
import CarillonMainLoop
import CarillonWire

#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#endif

/// `carillon post NAME ...`
enum PostCommand {
    static func run(_ arguments: [String]) throws(UsageError) -> ExitCode {
        let parser = CommandLineParser(
            program: "carillon post", usage: "NAME [KEY=VALUE ...]", summary: "Posts a notification.",
            description: """
                A VALUE that JSON would read as a number is one: 3 is an integer, 3.0 and 3e0 are floating point.
                true and false are booleans. Everything else is a string; --string KEY=3 makes one of any VALUE.

                With --lines every line of standard input is a post: KEY=VALUE pairs with blanks between them, quoted as
                in a shell, or a JSON object. What is queued with --posting-style asap or when-idle is coalesced among the posts of one
                connection, and each run of this command is one; at-exit waits for its end, however that comes.

                In --json, data is {"$data": "<base64>"} and a date is {"$date": "2026-11-21T09:30:00Z"}.
                """)
        let object = parser.string("object", short: "o", placeholder: "OBJECT", help: "The object it is about")
        let json = parser.string(
            "json", short: "j", placeholder: "JSON", help: "userInfo as a JSON object; - reads it from standard input")
        let strings = parser.strings("string", short: "s", placeholder: "KEY=VALUE", help: "A string in userInfo")
        let immediately = parser.flag(
            "deliver-immediately", short: "i", help: "Deliver to suspended applications too")
        let style = parser.string(
            "posting-style", short: "p", placeholder: "STYLE",
            help: "When to post it: \(ChoiceArguments.names(PostingStyle.self)); now if not given")
        let coalescing = parser.strings(
            "coalesce-on", short: "c", placeholder: "KEY",
            help: "Replace what is queued with the same \(ChoiceArguments.names(CoalescingKey.self))")
        let retain = parser.flag(
            "retain", short: "r", help: "Keep it as the value of its name and object, for those who come later")
        let connected = parser.flag(
            "while-connected", help: "Keep it until this command ends, as with --lines; implies --retain")
        let expires = parser.string(
            "expires", placeholder: "TIME", help: "Discard it after TIME: 90, 5m, 1h30m")
        let sessions = parser.flag(
            "all-sessions", short: "a", help: "Post it to the machine's other sessions too, as far as they take it")
        let lines = parser.flag("lines", help: "Post once for each line of standard input")
        let repetitions = parser.string("repeat", placeholder: "N", help: "Post it N times, on one connection")
        let delay = parser.string("delay", placeholder: "TIME", help: "With --repeat: from one to the next")
        let verbose = parser.flag("verbose", short: "v", help: "Tell how many clients matched")
        let version = parser.flag("version", help: "Show the version and exit")
        let rest = try parser.parse(arguments)
        if parser.value(version) { return Output.writeVersion() }

        guard let name = rest.first else { throw UsageError("post needs a NAME") }
        let count = try NumberArguments.count(parser.value(repetitions), "--repeat")
        let seconds = try NumberArguments.seconds(parser.value(delay), "--delay")
        if count == nil, seconds != nil { throw UsageError("--delay needs --repeat") }
        if count != nil, parser.value(lines) { throw UsageError("--repeat and --lines exclude each other") }
        var text = parser.value(json)
        if text == "-" {
            if parser.value(lines) { throw UsageError("--json - and --lines would both read standard input") }
            text = try StandardInput.readAll()
        }
        let userInfo = try UserInfoArguments.userInfo(
            pairs: Array(rest.dropFirst()), strings: parser.value(strings), json: text)
        var options = PostOptions()
        options.deliverImmediately = parser.value(immediately)
        options.postingStyle = try ChoiceArguments.one(parser.value(style), "--posting-style") ?? .now
        options.coalescing = Set(try ChoiceArguments.several(parser.value(coalescing), "--coalesce-on"))
        if parser.value(retain) || parser.value(connected) {
            options.retention = Retention(whileConnected: parser.value(connected))
        }
        options.goesToAllSessions = parser.value(sessions)
        options.expiresAfter = try NumberArguments.wholeSeconds(parser.value(expires), "--expires")
        let post = PostArguments(
            name: name, object: parser.value(object) ?? "", userInfo: userInfo, options: options,
            isVerbose: parser.value(verbose))
        if parser.value(lines) {
            var poster: LinePoster?
            return CommandSession.run { session in
                poster = LinePoster(
                    session: session, reading: STDIN_FILENO, showsProgress: !post.isVerbose,
                    report: { post.report($0, on: session) },
                    convert: { line throws(UsageError) in
                        (try post.outgoing(adding: try UserInfoArguments.userInfo(line: line)), .zero)
                    })
                poster?.start()
            }
        }
        if let count { return try repeated(post, count, every: seconds ?? 0) }
        let outgoing = try post.outgoing()
        return CommandSession.run { session in
            session.submit(
                .post(
                    outgoing.completed { result in
                        switch result {
                        case .failure(let error): session.fail(error)
                        case .success(let receivers):
                            post.report(receivers, on: session)
                            session.finish(.done)
                        }
                    }))
        }
    }

    /// Posts the same notification repeatedly.
    private static func repeated(
        _ post: PostArguments, _ count: Int, every seconds: Double
    ) throws(UsageError) -> ExitCode {
        // An error in the post is found before the first one is sent.
        let first = try post.outgoing()
        var stream: PostStream?
        var number = 0
        return CommandSession.run { session in
            stream = PostStream(
                session: session, total: count, showsProgress: !post.isVerbose,
                report: { post.report($0, on: session) }
            ) {
                guard let stream else { return }
                guard number < count else { return stream.end() }
                number += 1
                let label = "post \(number)"
                do throws(UsageError) {
                    // Each is a message of its own.
                    let outgoing = number == 1 ? first : try post.outgoing()
                    stream.add(
                        PostStream.Item(
                            outgoing: outgoing, label: label, delay: .seconds(Double(number - 1) * seconds)))
                } catch {
                    stream.fail("\(error)", label)
                    stream.end()
                }
            }
            stream?.start()
        }
    }
}
