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

/// A run of `carillon top`, on the screen or on paper.
final class TopRun: @unchecked Sendable {
    // Sendable: the command has one thread, on which everything here runs.
    private let loop = EventLoop()
    private let poll: TopPoll
    private var state: TopState
    /// The number of samples that are still to be shown; nil for no end.
    private var remaining: Int?
    private var exitCode: ExitCode?
    private var sources: [AnyObject] = []
    private let bus: String

    private var sample: TopSample?
    private var rates: TopRates?
    private var absence: ServiceError?
    private var screen: CursesScreen?

    init(state: TopState, every seconds: Double, times: Int?) {
        self.state = state
        remaining = times
        poll = TopPoll(every: seconds)
        // The place of the bus identifies it; the rest of its address is not informative.
        let address = (try? Connection.sessionBusAddress()) ?? "not known"
        bus = String(address.prefix { $0 != "," })
    }

    private var page: TopPage { TopPage(sample: sample, rates: rates, absence: absence, bus: bus) }

    private func finish(_ code: ExitCode) {
        exitCode = exitCode ?? code
        loop.quit()
    }

    private func run() -> ExitCode {
        poll.wantsValues = state.view == .values
        poll.told = { [unowned self] in told($0) }
        poll.start()
        if exitCode == nil { loop.run() }
        poll.stop()
        return exitCode ?? .done
    }

    private func watch(_ signals: [Int32], _ action: @escaping () -> Void) {
        for signal in signals {
            sources.append(
                EventSource.unixSignal(signal, on: .default) {
                    action()
                    return .keep
                })
        }
    }

    private func told(_ result: Result<TopSample, ServiceError>) {
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
            if screen != nil { show() } else { miss(error, isNew: isNew) }
        }
    }

    private var show: () -> Void = {}

    // MARK: Paper

    /// Prints lines for each sample.
    func print(_ lines: @escaping (TopSample, TopRates, String) -> [String]) -> ExitCode {
        poll.waitsForBridge = true
        watch([SIGINT, SIGTERM]) { [unowned self] in finish(remaining == nil ? .done : .interrupted) }
        show = { [unowned self] in
            guard let sample, let rates else { return }
            for line in lines(sample, rates, bus) where !Output.write(line) { return finish(.outputFailed) }
        }
        return run()
    }

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

    /// Waits for the next service, if there was one before; otherwise ends the run.
    private func miss(_ error: ServiceError, isNew: Bool) {
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

    func takeScreen(color: ColorChoice) -> ExitCode {
        // Set before ncurses, which takes signals without a handler, and would not restore the terminal in time.
        watch([SIGINT, SIGTERM, SIGHUP]) { [unowned self] in finish(.done) }
        watch([SIGWINCH]) { [unowned self] in
            screen?.resize()
            show()
        }
        // GLib can't watch this signal, which would end the process without restoring the terminal.
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
        // The signal of a terminal that goes away does not reach a process that ignores it, as under nohup.
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

    private func takeKeys() {
        while exitCode == nil, let key = screen?.nextKey() {
            switch state.press(key) {
            case .none: break
            case .ask:
                poll.wantsValues = state.view == .values
                poll.hurry()
            case .redraw: screen?.redraw()
            case .quit: finish(.done)
            }
            poll.wantsValues = state.view == .values
        }
        if exitCode == nil { draw() }
    }
}
