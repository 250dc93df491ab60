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

/// `carillon post NAME ...`: posts a notification once, repeatedly, or once for each line of standard input.
enum PostCommand {
    static func run(_ arguments: [String]) throws(UsageError) -> ExitCode {
        let parser = CommandLineParser(
            program: "carillon post", usage: "NAME [KEY=VALUE ...]", summary: "Posts a notification.",
            description: """
                A VALUE in the notation of a JSON number is a number: 3 is an integer, 3.0 and 3e0 are floating point.
                true and false are booleans. Any other VALUE is a string; --string KEY=3 makes any VALUE a string.

                With --lines every line of standard input is a post: KEY=VALUE pairs with blanks between them, quoted as
                in a shell, or a JSON object. Posts queued with --posting-style asap or when-idle are coalesced within
                one connection, and each run of this command is a separate connection. An at-exit post is sent when this
                command has ended, for any reason.

                In --json, data is {"$data": "<base64>"} and a date is {"$date": "2026-11-21T09:30:00Z"}.
                """)
        let object = parser.string("object", short: "o", placeholder: "OBJECT", help: "The object of the notification")
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
            help: "Replace queued posts with the same \(ChoiceArguments.names(CoalescingKey.self))")
        let retain = parser.flag(
            "retain", short: "r", help: "Retain it as the value of its name and object, for later observers")
        let connected = parser.flag(
            "while-connected", help: "Retain it until this command ends, as with --lines; implies --retain")
        let expires = parser.string(
            "expires", placeholder: "TIME", help: "Discard it after TIME: 90, 5m, 1h30m")
        let sessions = parser.flag(
            "all-sessions", short: "a", help: "Post it also to the machine's other sessions that accept it")
        let lines = parser.flag("lines", help: "Post once for each line of standard input")
        let repetitions = parser.string("repeat", placeholder: "N", help: "Post it N times, on one connection")
        let delay = parser.string("delay", placeholder: "TIME", help: "With --repeat: the time between posts")
        let verbose = parser.flag("verbose", short: "v", help: "Print the number of clients that it is delivered to")
        let version = parser.flag("version", help: "Show the version and exit")
        let rest = try parser.parse(arguments)
        if parser.value(version) { return Output.writeVersion() }

        // The options that exclude or need each other are checked first.
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
        // There are three ways to post: for each line, repeatedly, or once.
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

    /// Posts the same notification `count` times, for `--repeat`.
    private static func repeated(
        _ post: PostArguments, _ count: Int, every seconds: Double
    ) throws(UsageError) -> ExitCode {
        // An invalid post is found before the connection to the service.
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
                    // A request can be sent only once, so each repetition is a new one.
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
