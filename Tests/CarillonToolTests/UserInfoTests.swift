// SPDX-License-Identifier: Apache-2.0
import CarillonTestLimits
import CarillonTestSupport
import Testing

/// From the arguments of `post` through the service to the JSON of `observe`: values arrive as what they were (N3).
@Suite("carillon: userInfo on the command line", .serialized, .limited)
struct UserInfoTests {
    @Test("N3: KEY=VALUE becomes an integer, floating point, a boolean, or a string")
    func inference() throws {
        try check([
            Case(["a=3"], #"{"a": 3}"#),
            Case(["a=-3"], #"{"a": -3}"#),
            Case(["a=0"], #"{"a": 0}"#),
            Case(["a=-0"], #"{"a": 0}"#),
            Case(["a=9223372036854775807"], #"{"a": 9223372036854775807}"#),
            Case(["a=-9223372036854775808"], #"{"a": -9223372036854775808}"#),
            Case(["a=18446744073709551615"], #"{"a": 18446744073709551615}"#),
            Case(["a=3.0"], #"{"a": 3.0}"#),
            Case(["a=-0.5"], #"{"a": -0.5}"#),
            Case(["a=1e3"], #"{"a": 1000.0}"#),
            Case(["a=1E-2"], #"{"a": 0.01}"#),
            Case(["a=0.1"], #"{"a": 0.1}"#),
            Case(["a=true", "b=false"], #"{"a": true, "b": false}"#),
            // What JSON does not read as a number or a boolean is a string.
            Case(["a=True"], #"{"a": "True"}"#),
            Case(["a=yes"], #"{"a": "yes"}"#),
            Case(["a=007"], #"{"a": "007"}"#),
            Case(["a=+3"], #"{"a": "+3"}"#),
            Case(["a=.5"], #"{"a": ".5"}"#),
            Case(["a=5."], #"{"a": "5."}"#),
            Case(["a=1e"], #"{"a": "1e"}"#),
            Case(["a=0x10"], #"{"a": "0x10"}"#),
            Case(["a=nan"], #"{"a": "nan"}"#),
            Case(["a=inf"], #"{"a": "inf"}"#),
            Case(["a=null"], #"{"a": "null"}"#),
            Case(["a= 3"], #"{"a": " 3"}"#),
            Case(["a=3\n"], #"{"a": "3\n"}"#),
            Case(["a=١"], #"{"a": "١"}"#),
            Case(["a="], #"{"a": ""}"#),
            Case(["a=b=c"], #"{"a": "b=c"}"#),
            Case(["a b=c"], #"{"a b": "c"}"#),
            Case(["Größe=übergroß 🔔"], #"{"Größe": "übergroß 🔔"}"#),
        ])
    }

    @Test("N3: --string makes a string of any VALUE")
    func strings() throws {
        try check([
            Case(["--string", "a=3"], #"{"a": "3"}"#),
            Case(["-s", "a=true"], #"{"a": "true"}"#),
            Case(["--string=a=3"], #"{"a": "3"}"#),
            Case(["--string", "a=99999999999999999999999"], #"{"a": "99999999999999999999999"}"#),
            Case(["--string", "a="], #"{"a": ""}"#),
            Case(["--string", "a=1", "--string", "b=2", "c=3"], #"{"a": "1", "b": "2", "c": 3}"#),
        ])
    }

    @Test("N3: --json distinguishes integers from floating-point numbers")
    func json() throws {
        try check([
            Case(["--json", #"{}"#], #"{}"#),
            Case(["--json", #"{"a": 1, "b": 1.0, "c": 1e0}"#], #"{"a": 1, "b": 1.0, "c": 1.0}"#),
            Case(["--json", #"{"a": -1, "b": -1.5}"#], #"{"a": -1, "b": -1.5}"#),
            Case(["--json", #"{"a": 0.1}"#], #"{"a": 0.1}"#),
            Case(["--json", #"{"a": true, "b": 1}"#], #"{"a": true, "b": 1}"#),
            Case(["--json", #"{"a": 9223372036854775807}"#], #"{"a": 9223372036854775807}"#),
            Case(["--json", #"{"a": -9223372036854775808}"#], #"{"a": -9223372036854775808}"#),
            Case(["--json", #"{"a": 18446744073709551615}"#], #"{"a": 18446744073709551615}"#),
            Case(["--json", #"{"a": 9007199254740993}"#], #"{"a": 9007199254740993}"#),
            Case(["--json", #"{"a": 9007199254740993.0}"#], #"{"a": 9007199254740992.0}"#),
            Case(["--json", #"{"a": [1, 1.5, "x", true, [], {}]}"#], #"{"a": [1, 1.5, "x", true, [], {}]}"#),
            Case(["--json", #"{"a": [1, 2], "b": [1.0, 2.0]}"#], #"{"a": [1, 2], "b": [1.0, 2.0]}"#),
            Case(["--json", #"{"a": {"b": {"c": "d"}}}"#], #"{"a": {"b": {"c": "d"}}}"#),
            Case(["--json", #"{"a": "\u0001\n\"\\ü🔔"}"#], #"{"a": "\u0001\n\"\\ü🔔"}"#),
            Case(["--json", #"{"": ""}"#], #"{"": ""}"#),
            Case(["--json", #"{"a": 1.7976931348623157e308}"#], #"{"a": 1.7976931348623157e+308}"#),
            Case(["--json", #"{"a": 5e-324}"#], #"{"a": 5e-324}"#),
        ])
    }

    @Test("N3: data, dates and non-finite numbers survive the round trip through the service")
    func tagged() throws {
        try check([
            Case(["--json", #"{"a": {"$data": ""}}"#], #"{"a": {"$data": ""}}"#),
            Case(["--json", #"{"a": {"$data": "AP8K"}}"#], #"{"a": {"$data": "AP8K"}}"#),
            Case(
                ["--json", #"{"a": {"$date": "2026-11-21T09:30:00Z"}}"#], #"{"a": {"$date": "2026-11-21T09:30:00Z"}}"#),
            Case(
                ["--json", #"{"a": {"$date": "2026-11-21T09:30:00.000001Z"}}"#],
                #"{"a": {"$date": "2026-11-21T09:30:00.000001Z"}}"#),
            Case(
                ["--json", #"{"a": {"$date": "2026-11-21T10:30:00.5+01:00"}}"#],
                #"{"a": {"$date": "2026-11-21T09:30:00.500000Z"}}"#),
            Case(
                ["--json", #"{"a": {"$date": "1969-12-31T23:59:59.999999Z"}}"#],
                #"{"a": {"$date": "1969-12-31T23:59:59.999999Z"}}"#),
            Case(
                ["--json", #"{"a": {"$date": "2024-02-29T00:00:00-00:30"}}"#],
                #"{"a": {"$date": "2024-02-29T00:30:00Z"}}"#),
            Case(
                ["--json", #"{"a": [{"$double": "nan"}, {"$double": "inf"}, {"$double": "-inf"}]}"#],
                #"{"a": [{"$double": "nan"}, {"$double": "inf"}, {"$double": "-inf"}]}"#),
            // More than the one key, or a value that is no string: an ordinary object.
            Case(["--json", #"{"a": {"$data": "AP8K", "b": 1}}"#], #"{"a": {"$data": "AP8K", "b": 1}}"#),
            Case(["--json", #"{"a": {"$data": 1}}"#], #"{"a": {"$data": 1}}"#),
        ])
    }

    @Test("The JSON of observe --json can be posted again and arrives unchanged")
    func again() throws {
        let bell = try Bell()
        let observer = try bell.observe("--json", "--count", "2")
        try bell.post(
            "Ding", "--json",
            #"{"a": [1, 1.0, "x"], "b": {"$data": "AP8K"}, "c": {"$date": "2026-11-21T09:30:00.000001Z"}}"#)
        let first = try ObservedLine(try observer.nextLine()).userInfoText
        try bell.post("Ding", "--json", first)
        #expect(try ObservedLine(try observer.nextLine()).userInfoText == first)
    }

    // MARK: -

    private struct Case {
        let arguments: [String]
        let userInfo: String

        init(_ arguments: [String], _ userInfo: String) {
            self.arguments = arguments
            self.userInfo = userInfo
        }
    }

    /// Posts every case to one observer; order is kept (D4), so the lines answer the posts.
    private func check(_ cases: [Case]) throws {
        let bell = try Bell()
        let observer = try bell.observe("--json", "Ding", "--count", String(cases.count))
        for (index, item) in cases.enumerated() {
            let result = try Command.run(
                try Bell.path(), ["post", "Ding"] + item.arguments, environment: bell.bus.environment)
            try #require(result.exitCode == 0, "\(result)")
            let line = try ObservedLine(try observer.nextLine())
            #expect(line.userInfoText == item.userInfo, "post \(item.arguments)")
            #expect(line.members["sequence"] as? Int == index + 1)
        }
        #expect(try observer.waitForExit() == .exited(0))
    }
}
