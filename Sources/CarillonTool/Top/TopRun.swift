// SPDX-License-Identifier: Apache-2.0
import CarillonClient
import CarillonDBus
import CarillonMainLoop
import CarillonWire

#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#endif

/// A run of `carillon top` in one of two modes: on the full screen with keys, or printed on standard output, as with
/// `--batch` and `--json`. It polls the service, computes rates, and shows each sample.
final class TopRun: @unchecked Sendable {
    // Sendable: the command has one thread, on which everything here runs.
    private let loop = EventLoop()
    private let poll: TopPoll
    private var state: TopState
    /// The number of samples that are still to be shown; nil for no end.
    private var remaining: Int?
    /// The code with which the run ends; nil while it continues.
    private var exitCode: ExitCode?
    /// The timers and the handlers of signals and keys.
    private var sources: [AnyObject] = []
    /// The address of the bus, without the parts behind the first comma.
    private let bus: String

    private var sample: TopSample?
    private var rates: TopRates?
    /// The error of the last poll; nil while the service answers.
    private var absence: ServiceError?
    /// The full screen; nil in a printed run.
    private var screen: CursesScreen?

    /// - Parameters:
    ///   - seconds: the interval between two polls.
    ///   - times: the number of samples to show; nil for no end.
    init(state: TopState, every seconds: Double, times: Int?) {
        self.state = state
        remaining = times
        poll = TopPoll(every: seconds)
        // The first part of the address, such as a path, identifies the bus. The others, such as the GUID, are left
        // out.
        let address = (try? Connection.sessionBusAddress()) ?? "not known"
        bus = String(address.prefix { $0 != "," })
    }

    private var page: TopPage { TopPage(sample: sample, rates: rates, absence: absence, bus: bus) }

    /// Ends the run. The code of the first call counts.
    private func finish(_ code: ExitCode) {
        exitCode = exitCode ?? code
        loop.quit()
    }

    /// Polls and shows samples until ``finish(_:)``.
    private func run() -> ExitCode {
        poll.wantsValues = state.view == .values
        poll.onResult = { [unowned self] in onResult($0) }
        poll.start()
        if exitCode == nil { loop.run() }
        poll.stop()
        return exitCode ?? .done
    }

    /// Sets a handler for signals.
    private func watch(_ signals: [Int32], _ action: @escaping () -> Void) {
        for signal in signals {
            sources.append(
                EventSource.unixSignal(signal, on: .default) {
                    action()
                    return .keep
                })
        }
    }

    /// Handles the result of a poll. A paused display ignores it.
    private func onResult(_ result: Result<TopSample, ServiceError>) {
        guard exitCode == nil, !state.isPaused else { return }
        switch result {
        case .success(let sample):
            rates = TopRates(sample, since: self.sample)
            (self.sample, absence) = (sample, nil)
            show()
            guard let left = remaining else { return }
            remaining = left - 1
            if left == 1 { finish(.done) }
        case .failure(let error):
            let isNew = absence == nil
            absence = error
            if screen != nil { show() } else { pollFailed(error, isNew: isNew) }
        }
    }

    /// Shows the last sample, in the mode of the run.
    private var show: () -> Void = {}

    // MARK: Printed run

    /// Runs in the printed mode.
    ///
    /// - Parameter lines: returns the lines for a sample. It receives the sample, its rates, and the address of the
    ///   bus.
    func print(_ lines: @escaping (TopSample, TopRates, String) -> [String]) -> ExitCode {
        poll.waitsForBridge = true
        // Without --count a signal is the only end of the run, so it is no interruption.
        watch([SIGINT, SIGTERM]) { [unowned self] in finish(remaining == nil ? .done : .interrupted) }
        show = { [unowned self] in
            guard let sample, let rates else { return }
            for line in lines(sample, rates, bus) where !Output.write(line) { return finish(.outputFailed) }
        }
        return run()
    }

    /// Runs in the printed mode with a page for each sample, for `--batch`.
    func printPages(color: ColorChoice) -> ExitCode {
        var isFirst = true
        return print { [unowned self] _, _, _ in
            let terminal = Terminal(color: color)
            let lines = page.lines(state, width: terminal.width).map { line in
                terminal.text(of: terminal.width.map { line.cut(to: $0) } ?? line)
            }
            defer { isFirst = false }
            return isFirst ? lines : [""] + lines
        }
    }

    /// Handles the error of a poll in a printed run. The run waits for the next service if there was one before;
    /// otherwise it ends.
    private func pollFailed(_ error: ServiceError, isNew: Bool) {
        if sample == nil {
            if case .unavailable = error {
                printError("carillon: the service does not run")
            } else {
                printError("carillon: \(error)")
            }
            return finish(.unavailable)
        }
        if isNew { printError("carillon: waiting for the service: \(error)") }
    }

    // MARK: Screen

    /// Runs on the full screen.
    func runOnScreen(color: ColorChoice) -> ExitCode {
        // These handlers are set before ncurses starts, which sets its own for signals without one. The run has to end
        // in order, so that the terminal is restored.
        watch([SIGINT, SIGTERM, SIGHUP]) { [unowned self] in finish(.done) }
        watch([SIGWINCH]) { [unowned self] in
            screen?.resize()
            show()
        }
        // GLib can't watch SIGQUIT, which would end the process without restoring the terminal. It becomes SIGTERM.
        signal(SIGQUIT) { _ in _ = kill(getpid(), SIGTERM) }
        do throws(CursesLibrary.Missing) {
            screen = try CursesScreen(color: color)
        } catch {
            printError("carillon: no full screen: \(error)\n'carillon top --batch' needs none.")
            return .usage
        }
        defer { screen?.close() }
        show = { [unowned self] in draw() }
        sources.append(
            DescriptorSource(on: .default, descriptor: STDIN_FILENO) { [unowned self] in takeKeys() })
        // A closed terminal sends SIGHUP, but a process may ignore that signal, as under nohup. Therefore the terminal
        // is tested each second.
        sources.append(
            EventSource.timer(milliseconds: 1000, on: .default) { [unowned self] in
                if screen?.isConnected == false { finish(.done) }
                return .keep
            })
        draw()
        return run()
    }

    private func draw() {
        guard let screen else { return }
        let (lines, cursor) = page.screen(&state, lines: screen.size.lines, columns: screen.size.columns)
        screen.show(lines, cursor: cursor)
    }

    /// Handles the keys that were pressed.
    private func takeKeys() {
        while exitCode == nil, let key = screen?.nextKey() {
            switch state.press(key) {
            case .none: break
            case .ask:
                poll.wantsValues = state.view == .values
                poll.pollSoon()
            case .redraw: screen?.redraw()
            case .quit: finish(.done)
            }
            // A key may have changed the view without a request.
            poll.wantsValues = state.view == .values
        }
        if exitCode == nil { draw() }
    }
}
