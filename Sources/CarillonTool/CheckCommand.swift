// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop

#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#endif

/// `carillon check [FILE ...]`: checks configuration files, before a program reads them (E9).
///
/// It runs `carillond --check` and `carillon-bridge --check`, since these programs define the valid contents of their
/// files. They write their findings to the same standard error.
enum CheckCommand {
    static func run(_ arguments: [String]) throws(UsageError) -> ExitCode {
        let parser = CommandLineParser(
            program: "carillon check", usage: "[FILE ...]", summary: "Checks configuration files for mistakes.",
            description: """
                Without FILE it checks the files of this machine: carillon/carillon.conf of the service, and
                carillon/bridge.conf of the bridge where that is installed. A FILE whose name ends in bridge.conf is one
                of the bridge. The files are not put in force; see 'carillon reload'. After a mistake the exit status is
                1, and standard error shows FILE:LINE: reason.
                """)
        let version = parser.flag("version", help: "Show the version and exit")
        let files = try parser.parse(arguments)
        if parser.value(version) { return Output.writeVersion() }
        if files.contains("") { throw UsageError("'' is not a FILE") }
        // A file name decides between the two programs.
        let bridges = files.filter { $0.hasSuffix("bridge.conf") }
        let services = files.filter { !$0.hasSuffix("bridge.conf") }
        var checks: [[String]] = []
        if files.isEmpty || !services.isEmpty { checks.append([program("carillond"), "--check", "--"] + services) }
        let bridge = program("carillon-bridge")
        // Without FILE the bridge's files are checked only if the bridge is installed beside this program: then its
        // name is a path.
        if !bridges.isEmpty || files.isEmpty && bridge.hasPrefix("/") {
            checks.append([bridge, "--check", "--"] + bridges)
        }
        var code = ExitCode.done
        for check in checks {
            let result = result(of: check)
            if result != .done { code = result }
        }
        return code
    }

    /// Returns the path of the program beside this one; otherwise its name, for a program in PATH.
    private static func program(_ name: String) -> String {
        var buffer = [CChar](repeating: 0, count: Int(PATH_MAX))
        let length = readlink("/proc/self/exe", &buffer, buffer.count - 1)
        guard length > 0 else { return name }
        let own = String(decoding: buffer[..<length].map { UInt8(bitPattern: $0) }, as: UTF8.self)
        guard let slash = own.lastIndex(of: "/") else { return name }
        let path = own[...slash] + name
        return access(String(path), X_OK) == 0 ? String(path) : name
    }

    /// Runs a checking program, and returns its exit code as that of this command.
    private static func result(of command: [String]) -> ExitCode {
        let loop = EventLoop()
        var ending: ChildProgram.Ending?
        do throws(ChildProgram.Failure) {
            let child = try ChildProgram(command, on: .default) {
                ending = $0
                loop.quit()
            }
            loop.run()
            withExtendedLifetime(child) {}
        } catch {
            printError("carillon: the program that reads the file can't be run: \(error)")
            return .unavailable
        }
        guard case .exited(let status)? = ending else { return .unavailable }
        return ExitCode(rawValue: status) ?? .unavailable
    }
}
