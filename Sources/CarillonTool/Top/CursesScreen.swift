// SPDX-License-Identifier: Apache-2.0
import CCarillonNcurses

#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#endif

/// The full-screen terminal of `carillon top`, by means of ncurses: it shows lines, and reads keys. The former state of
/// the terminal is restored by ``close()``, or when this object is released.
///
/// Threads: one thread only.
final class CursesScreen {
    /// A key that the user has pressed.
    enum Key: Equatable {
        case character(Unicode.Scalar)
        case up, down, pageUp, pageDown, home, end
        case enter, escape, backspace
    }

    private let curses: CursesLibrary
    private let window: CursesLibrary.Window
    private let hasColors: Bool
    private var isOpen = true

    /// Switches the terminal to the full-screen mode. Signal handlers have to be set before, since ncurses sets its own
    /// for signals without one. Among these is the signal of Control-Z, which ncurses handles as a shell expects.
    ///
    /// - Throws: ``CursesLibrary/Missing`` if ncurses is not installed, or does not know the terminal.
    init(color: ColorChoice) throws(CursesLibrary.Missing) {
        let terminal = getenv("TERM").map { String(cString: $0) } ?? ""
        guard !["", "dumb"].contains(terminal) else {
            throw CursesLibrary.Missing(description: "TERM names a terminal that can't move its cursor")
        }
        curses = try CursesLibrary()
        // ncurses supports the characters of the locale's encoding. For a locale other than UTF-8, such as LC_ALL=C,
        // UTF-8 is chosen nevertheless, since the terminal may support it.
        setlocale(LC_CTYPE, "")
        if String(cString: nl_langinfo(Int32(CODESET))) != "UTF-8" { setlocale(LC_CTYPE, "C.UTF-8") }
        guard carillon_newterm(curses.newTerminal) != nil, let window = curses.standardWindow.pointee else {
            throw CursesLibrary.Missing(description: "ncurses does not know the terminal '\(terminal)' of TERM")
        }
        self.window = window
        _ = curses.cbreak()
        _ = curses.noEcho()
        _ = curses.noNewline()
        _ = curses.keypad(window, true)
        _ = curses.noDelay(window, true)
        // After an escape character ncurses waits 50 ms for the rest of a key's sequence. Without a rest it is the
        // escape key.
        _ = curses.setEscapeDelay(50)
        _ = curses.setCursor(0)
        let mayHaveColors =
            switch color {
            case .always: true
            case .never: false
            case .auto: (getenv("NO_COLOR")?.pointee ?? 0) == 0
            }
        hasColors = mayHaveColors && curses.hasColors()
        guard hasColors else { return }
        _ = curses.startColor()
        _ = curses.useDefaultColors()
        for style in [Terminal.Style.warning, .bad, .good] { _ = curses.initPair(style.pair, style.color, -1) }
    }

    deinit { close() }

    /// Restores the terminal. Further calls have no effect.
    func close() {
        guard isOpen else { return }
        isOpen = false
        _ = curses.endWindows()
    }

    /// The size of the terminal after the last ``resize()``; 24 lines of 80 columns if the terminal does not report it.
    private(set) lazy var size = Self.terminalSize

    private static var terminalSize: (lines: Int, columns: Int) {
        var size = winsize()
        guard ioctl(STDOUT_FILENO, UInt(TIOCGWINSZ), &size) == 0, size.ws_col > 0, size.ws_row > 0 else {
            return (24, 80)
        }
        return (Int(size.ws_row), Int(size.ws_col))
    }

    /// Adapts the screen to the terminal's new size.
    func resize() {
        size = Self.terminalSize
        _ = curses.resize(Int32(size.lines), Int32(size.columns))
    }

    /// Makes the next ``show(_:cursor:)`` draw all characters. Normally ncurses draws only changes, which is wrong
    /// after another program has written on the terminal.
    func redraw() {
        _ = curses.clearNext(window, true)
    }

    /// Replaces the content of the screen by these lines, from the top.
    ///
    /// - Parameter cursor: the position of the cursor; nil for no cursor.
    func show(_ lines: [StyledLine], cursor: (line: Int, column: Int)? = nil) {
        _ = curses.erase(window)
        for (number, line) in lines.prefix(size.lines).enumerated() {
            _ = curses.move(window, Int32(number), 0)
            for part in line.cut(to: size.columns).parts {
                set(part.style)
                // The result is ignored: it is an error in the last column of the last line, which is shown
                // nevertheless.
                _ = curses.add(window, part.text, -1)
            }
        }
        set(nil)
        if let cursor {
            _ = curses.move(window, Int32(cursor.line), Int32(min(cursor.column, size.columns - 1)))
        }
        _ = curses.setCursor(cursor == nil ? 0 : 1)
        _ = curses.refresh(window)
    }

    /// Sets the attributes of the following text. Colors are left out where the terminal has none; a loss is bold
    /// there, too.
    private func set(_ style: Terminal.Style?) {
        let attributes =
            switch style {
            case .bold: carillon_bold
            case .dim: carillon_dim
            case .reverse: carillon_reverse
            case .bad: carillon_bold
            default: carillon_normal
            }
        _ = curses.setAttributes(window, attributes, hasColors ? style?.pair ?? 0 : 0, nil)
    }

    // MARK: Keys

    /// Whether the terminal still exists, so that it can send keys.
    var isConnected: Bool {
        var state = pollfd(fd: STDIN_FILENO, events: Int16(POLLIN), revents: 0)
        return poll(&state, 1, 0) <= 0 || Int32(state.revents) & (POLLHUP | POLLERR | POLLNVAL) == 0
    }

    /// Returns the next key that was pressed; nil if there is none.
    func nextKey() -> Key? {
        while true {
            let code = curses.getKey(window)
            switch code {
            case ERR: return nil
            case KEY_UP: return .up
            case KEY_DOWN: return .down
            case KEY_PPAGE: return .pageUp
            case KEY_NPAGE: return .pageDown
            case KEY_HOME: return .home
            case KEY_END: return .end
            case KEY_ENTER, 0x0A, 0x0D: return .enter
            case KEY_BACKSPACE, 0x08, 0x7F: return .backspace
            case 0x1B: return .escape
            case 0..<0x80: return .character(Unicode.Scalar(UInt8(code)))
            case 0x80..<0x100:
                if let scalar = readScalar(after: UInt8(code)) { return .character(scalar) }
            // Other keys are ignored, as is ncurses's report of a new size, which the signal SIGWINCH reports as well.
            default: break
            }
        }
    }

    /// Reads the rest of a UTF-8 character of several bytes, which the terminal sends together; nil if it is invalid.
    private func readScalar(after first: UInt8) -> Unicode.Scalar? {
        let count =
            switch first {
            case 0xC2...0xDF: 2
            case 0xE0...0xEF: 3
            case 0xF0...0xF4: 4
            default: 0
            }
        var bytes = [first]
        while bytes.count < count {
            // In UTF-8 each byte behind the first begins with the bits 10.
            guard let next = UInt8(exactly: curses.getKey(window)), next & 0xC0 == 0x80 else { return nil }
            bytes.append(next)
        }
        return String(validating: bytes, as: UTF8.self)?.unicodeScalars.first
    }
}

extension Terminal.Style {
    /// The number of the ncurses color pair, which is that of its color; 0 is the default pair.
    fileprivate var pair: Int16 {
        switch self {
        case .warning, .bad, .good: color
        case .bold, .dim, .reverse: 0
        }
    }

    /// The color of the text; -1 for the terminal's default.
    fileprivate var color: Int16 {
        switch self {
        case .bad: Int16(COLOR_RED)
        case .good: Int16(COLOR_GREEN)
        case .warning: Int16(COLOR_YELLOW)
        case .bold, .dim, .reverse: -1
        }
    }
}
