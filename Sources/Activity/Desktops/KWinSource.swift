// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonDBus
import CarillonMainLoop

#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#endif

/// The activity source for KWin (KDE Plasma): it loads a script into KWin that reports the active window.
///
/// The source writes the script into the runtime directory, from where KWin reads it, and unloads the script when the
/// source is released. The script calls the service by its unique name on the bus: a call to the well-known name would
/// start a service that has ended.
final class KWinSource: ReportedSource {
    private let directory: String
    private let uniqueName: UniqueName
    /// Whether KWin has loaded the script.
    private var isLoaded = false

    private static let kwin: WellKnownName = "org.kde.KWin"
    private static let scriptName = "carillon-activity"

    /// - Parameters:
    ///   - directory: A directory of the service in the user's runtime directory, created if necessary.
    ///   - uniqueName: The unique name on `bus`.
    init(bus: any MessageBus, directory: String, uniqueName: UniqueName) {
        self.directory = directory
        self.uniqueName = uniqueName
        super.init(peer: Self.kwin, bus: bus)
    }

    deinit {
        if isLoaded { unload() }
    }

    /// Writes the script, and has KWin load and start it.
    override func desktopFound() {
        mkdir(directory, 0o700)
        let path = "\(directory)/kwin-activity.js"
        guard writeFile(Self.script(reportingTo: uniqueName, watchesVisibility), to: path) else {
            return end("can't write \(path): \(String(cString: strerror(errno)))")
        }
        // The script of an earlier, killed process contains another unique name.
        unload()
        let load = Self.call("loadScript")
        var writer = MessageWriter(load)
        writer.append(path)
        writer.append(Self.scriptName)
        bus.call(load) { [weak self] result in
            guard let self else { return }
            switch result {
            case .failure(let error): end("KWin does not load the script: \(error)")
            case .success(let reply):
                var reader = MessageReader(reply)
                guard let number = try? reader.read(Int32.self), number >= 0 else {
                    return end("KWin does not load the script")
                }
                isLoaded = true
                bus.call(Self.call("start")) { [weak self] result in
                    if case .failure(let error) = result { self?.end("KWin does not start the script: \(error)") }
                }
            }
        }
    }

    /// Asks KWin whether the script is loaded, since a script cannot be queried.
    override func requestAnswer() {
        let message = Self.call("isScriptLoaded")
        var writer = MessageWriter(message)
        writer.append(Self.scriptName)
        bus.call(message) { [weak self] result in
            guard let self, case .success(let reply) = result else { return }
            var reader = MessageReader(reply)
            if (try? reader.read(Bool.self)) == true { return onEvent?(.alive) ?? () }
            end("KWin has unloaded the script")
        }
    }

    private func unload() {
        let message = Self.call("unloadScript")
        message.expectsNoReply = true
        var writer = MessageWriter(message)
        writer.append(Self.scriptName)
        bus.send(message)
    }

    /// Returns a call of KWin's scripting interface.
    private static func call(_ member: MemberName) -> Message {
        .methodCall(
            to: kwin, path: "/Scripting", interface: "org.kde.kwin.Scripting", member: member, startsService: false)
    }

    private func writeFile(_ text: String, to path: String) -> Bool {
        let descriptor = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0o600)
        guard descriptor >= 0 else { return false }
        defer { close(descriptor) }
        let bytes = Array(text.utf8)
        return write(descriptor, bytes, bytes.count) == bytes.count
    }

    /// Returns the script for KWin 5 and 6, which use different names.
    private static func script(reportingTo name: UniqueName, _ watchesVisibility: Bool) -> String {
        let interface = ActivityInterface.name
        let (focused, closed) = (ActivityInterface.WindowFocused.member, ActivityInterface.Closed.member)
        let shell = ActivityInterface.ShellWindow.member
        let visibility = ActivityInterface.WindowVisibility.member
        return """
            // Reports to carillond which window has the focus.
            function call(member) {
                callDBus.apply(null, ["\(name)", "\(ActivityInterface.path)", "\(interface)"]
                    .concat(Array.prototype.slice.call(arguments)));
            }
            function id(window) { return String(window.internalId); }
            function application(window) { return String(window.desktopFileName || ""); }
            function kind(window) {
                if (window.dock || window.desktopWindow) return "shell";
                if (window.notification || window.criticalNotification || window.onScreenDisplay || window.tooltip
                    || window.splash || window.popupMenu || window.dropdownMenu || window.comboBox) return "passing";
                return "application";
            }
            // The window that this one belongs to in the end; itself if to none.
            function main(window) {
                for (var depth = 0; depth < 16 && window.transientFor; depth++) window = window.transientFor;
                return window;
            }
            function focused(window) {
                if (!window) return call("\(focused)", "", 0, "", "", 0, "");
                var owner = main(window), isOther = owner !== window;
                call("\(focused)", id(window), window.pid, application(window), kind(window),
                    isOther ? owner.pid : 0, isOther ? application(owner) : "");
            }
            var watchesVisibility = \(watchesVisibility), reportedHidden = {};
            function hidden(window) {
                if (window.minimized) return true;
                if (window.onAllDesktops) return false;
                var current = workspace.currentDesktop;
                if (typeof current === "number") return window.desktop !== current;
                return !window.desktops.some(function (desktop) { return desktop.id === current.id; });
            }
            function reportVisibility(window) {
                var isHidden = hidden(window);
                if (!watchesVisibility || kind(window) === "shell" || reportedHidden[id(window)] === isHidden) return;
                reportedHidden[id(window)] = isHidden;
                call("\(visibility)", id(window), window.pid, application(window), kind(window), isHidden);
            }
            function reportAll() {
                (workspace.windowList ? workspace.windowList() : workspace.clientList()).forEach(reportVisibility);
            }
            function watch(window) {
                ["minimizedChanged", "desktopChanged", "desktopsChanged"].forEach(function (change) {
                    if (window[change]) window[change].connect(function () { reportVisibility(window); });
                });
                reportVisibility(window);
            }
            function added(window) {
                if (window && kind(window) === "shell") {
                    call("\(shell)", id(window), window.pid, application(window));
                }
                if (window && watchesVisibility) watch(window);
            }
            function closed(window) {
                if (window) call("\(closed)", id(window));
                if (window) delete reportedHidden[id(window)];
            }
            if (watchesVisibility) workspace.currentDesktopChanged.connect(reportAll);
            if (workspace.windowActivated) {
                workspace.windowActivated.connect(focused);
                workspace.windowAdded.connect(added);
                workspace.windowRemoved.connect(closed);
                workspace.windowList().forEach(added);
                focused(workspace.activeWindow);
            } else {
                workspace.clientActivated.connect(focused);
                workspace.clientAdded.connect(added);
                workspace.clientRemoved.connect(closed);
                workspace.clientList().forEach(added);
                focused(workspace.activeClient);
            }

            """
    }
}
