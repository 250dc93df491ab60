// SPDX-License-Identifier: Apache-2.0
import CarillonTestSupport
import Foundation
import Testing

/// A desktop of one test's own, without a screen.
protocol Desktop: AnyObject {
    /// The bus's environment with what a program needs to open windows here, and the service to find the desktop.
    var environment: [String: String] { get }
    /// Gives the focus to the window with this title, as a person does.
    func activate(_ title: String) throws
    /// What its programs wrote, for the comment of a failure.
    var transcript: String { get }
}

enum DesktopSupport {
    static let python = "/usr/bin/python3"
    static let window = Executables.packageRoot + "/Tests/Desktop/window.py"

    /// Cancels the test when one of these programs, or GTK for Python, is not installed. In continuous integration,
    /// where all is installed, that is a failure.
    static func require(_ programs: [String]) throws {
        var missing = programs.filter { Command.find($0) == nil }
        if !hasGTK { missing.append("python3-gi with gir1.2-gtk-3.0") }
        if !missing.isEmpty { try skip("\(missing.joined(separator: ", ")) not installed") }
    }

    /// A bus with an X server and a window manager beside it.
    static func x11() throws -> (PrivateBus, X11Desktop) {
        let bus = try PrivateBus()
        return (bus, try X11Desktop(on: bus))
    }

    /// Cancels the test; in continuous integration it fails.
    static func skip(_ reason: String) throws {
        let comment: Comment = "skipped: \(reason)"
        if ProcessInfo.processInfo.environment["CI"] == "true" { Issue.record(comment) }
        FileHandle.standardError.write(Data("\(comment)\n".utf8))
        try Test.cancel(comment)
    }

    private static let hasGTK: Bool = {
        let check = "import gi; gi.require_version('Gtk', '3.0'); from gi.repository import Gio"
        return (try? Command.run(python, ["-c", check]).exitCode) == 0
    }()

    /// For programs with windows: no accessibility bus, which these buses have no services for, and no settings.
    static let quiet = ["NO_AT_BRIDGE": "1", "GTK_A11Y": "none", "GSETTINGS_BACKEND": "memory"]
}

/// An X server, and a window manager on it.
final class X11Desktop: Desktop {
    let environment: [String: String]
    let display: String
    private(set) var server: RunningCommand
    private(set) var manager: RunningCommand?
    private let managerKind: Manager
    private let managerCommand: [String]

    /// A window manager.
    enum Manager: String {
        case openbox, i3
    }

    /// - Parameters:
    ///   - kind: which window manager.
    ///   - withManager: whether it is started at once.
    ///   - cookie: whether the server lets in only who has its cookie, which `XAUTHORITY` names.
    init(on bus: PrivateBus, manager kind: Manager = .openbox, withManager: Bool = true, cookie: Bool = false) throws {
        try DesktopSupport.require(["Xvfb", kind.rawValue, "xdotool"])
        managerKind = kind
        switch kind {
        case .openbox: managerCommand = ["openbox", "--sm-disable"]
        case .i3:
            managerCommand = ["i3", "-c", try bus.directory.write("font pango:monospace 8\n", to: "i3.conf")]
        }
        var options: [String] = []
        var variables: [String: String] = [:]
        if cookie {
            variables["XAUTHORITY"] = try Self.writeCookie(in: bus.directory)
            options = ["-auth", variables["XAUTHORITY"]!]
        }
        (server, display) = try Self.startServer(options, bus.environment)
        environment = bus.environment.merging(DesktopSupport.quiet) { $1 }.merging([
            "DISPLAY": display, "GDK_BACKEND": "x11",
        ]) { $1 }.merging(variables) { $1 }
        if withManager { try startManager() }
    }

    /// Starts a server on a display that no other takes, not even while this one is restarted: those that look for a free
    /// one begin at 0.
    private static func startServer(
        _ options: [String], _ environment: [String: String]
    ) throws -> (RunningCommand, display: String) {
        var attempts = 5
        while true {
            let display = ":\(Int.random(in: 1000..<50_000))"
            do {
                return (try startServer(on: display, options, environment), display)
            } catch {
                guard attempts > 1 else { throw error }
                attempts -= 1
            }
        }
    }

    /// A server that stays as it is when its last client goes: without that, the question whether the manager serves ends
    /// the connection that the manager is opening.
    /// - Returns: when it is ready.
    private static func startServer(
        on display: String, _ options: [String], _ environment: [String: String]
    ) throws -> RunningCommand {
        let server = try RunningCommand(
            "Xvfb",
            [display, "-displayfd", "1", "-screen", "0", "640x480x24", "-nolisten", "tcp", "-noreset"] + options,
            environment: environment)
        _ = try server.nextLine()
        return server
    }

    /// A file with one cookie for any display.
    private static func writeCookie(in directory: TemporaryDirectory) throws -> String {
        func counted(_ bytes: [UInt8]) -> [UInt8] { [UInt8(bytes.count >> 8), UInt8(bytes.count & 0xFF)] + bytes }
        let cookie = (0..<16).map { _ in UInt8.random(in: 0...255) }
        let entry =
            [0xFF, 0xFF] + counted([]) + counted([]) + counted(Array("MIT-MAGIC-COOKIE-1".utf8)) + counted(cookie)
        let path = directory.entry("Xauthority")
        try Data(entry).write(to: URL(fileURLWithPath: path))
        return path
    }

    func startManager() throws {
        let manager = try RunningCommand(
            managerCommand[0], Array(managerCommand.dropFirst()), environment: environment)
        self.manager = manager
        // A window that is shown while openbox starts may never be told that it is, and SDL waits for that for ever; one
        // that comes before i3 is there is placed by nobody.
        let question = managerKind == .i3 ? ["i3-msg", "-q", "nop"] : ["xdotool", "get_num_desktops"]
        try eventually("the manager serves: \(transcript)", within: .desktop) {
            guard manager.isRunning else { throw NotInTime("the manager ended as it started: \(transcript)") }
            return try Command.run(question[0], Array(question.dropFirst()), environment: environment).exitCode == 0
        }
    }

    func killManager() throws {
        manager?.kill()
        _ = try manager?.waitForExit()
    }

    func activate(_ title: String) throws {
        // A window is not visible for a moment when a window manager takes it over, from another one or from nobody.
        try eventually("\(title) is visible, and asked to be active") {
            try Command.run(
                "xdotool", ["search", "--onlyvisible", "--name", "^\(title)$", "windowactivate"],
                environment: environment
            ).exitCode == 0
        }
    }

    /// Ends the server, and with it all programs that have windows there.
    func killServer() throws {
        server.kill()
        _ = try server.waitForExit()
    }

    /// Starts another server in the place of one that ended.
    func restartServer() throws {
        server = try Self.startServer(on: display, [], environment)
        try startManager()
    }

    var transcript: String { server.transcript + "\n" + (manager?.transcript ?? "") }
}

/// Sway without a screen. It refuses to run as root: there it runs as nobody, whose sockets root can open.
final class SwayDesktop: Desktop {
    let environment: [String: String]
    private let sway: RunningCommand

    init(on bus: PrivateBus) throws {
        try DesktopSupport.require(["sway", "swaymsg", "setpriv"])
        let directory = bus.directory
        let runtime = try directory.createSubdirectory("sway")
        let configuration = try directory.write("xwayland disable\n", to: "sway.conf")
        var environment = bus.environment.merging([
            "XDG_RUNTIME_DIR": runtime, "SWAYSOCK": "\(runtime)/ipc", "WLR_BACKENDS": "headless",
            "WLR_LIBINPUT_NO_DEVICES": "1", "WLR_RENDERER": "pixman",
        ]) { $1 }
        environment["DISPLAY"] = nil
        var command = ["sway", "-c", configuration]
        if getuid() == 0 {
            let nobody: uid_t = 65534
            chmod(directory.path, 0o711)
            chown(runtime, nobody, nobody)
            environment["HOME"] = runtime
            command = ["setpriv", "--reuid=\(nobody)", "--regid=\(nobody)", "--clear-groups"] + command
        }
        sway = try RunningCommand(command[0], Array(command.dropFirst()), environment: environment)
        let socket = environment["SWAYSOCK"]!
        let sway = sway
        try eventually("sway serves: \(sway.transcript)") {
            guard sway.isRunning else { throw NotInTime(sway.transcript) }
            return FileManager.default.fileExists(atPath: socket)
                && FileManager.default.fileExists(atPath: "\(runtime)/wayland-1")
        }
        self.environment = bus.environment.merging(DesktopSupport.quiet) { $1 }.merging([
            "SWAYSOCK": socket, "WAYLAND_DISPLAY": "\(runtime)/wayland-1", "GDK_BACKEND": "wayland",
        ]) { $1 }
    }

    func activate(_ title: String) throws { try message("[title=\"^\(title)$\"] focus") }

    /// Has sway carry out a command.
    func message(_ command: String) throws {
        let result = try Command.run("swaymsg", ["--", command], environment: environment)
        guard result.exitCode == 0 else { throw NotInTime("\(result)") }
    }

    func kill() throws {
        sway.kill()
        _ = try sway.waitForExit()
    }

    /// It lives, and does nothing until ``goOn()``.
    func stop() throws { try ProcessState.stop(sway.pid) }
    func goOn() { sway.signal(SIGCONT) }

    var transcript: String { sway.transcript }
}
