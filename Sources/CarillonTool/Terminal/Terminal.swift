// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop

#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#endif

/// The capabilities of standard output: its width and its colors. Commands format their output for people with it.
struct Terminal: Sendable {
    /// An emphasis of a text. The text alone has to be clear, because not every terminal shows the emphasis.
    enum Style: Sendable {
        case bold
        case dim
        /// The selected one of several texts.
        case reverse
        /// A text that needs attention.
        case warning
        /// A loss, or a refusal.
        case bad
        /// A good state.
        case good

        /// The parameters of Select Graphic Rendition (ECMA-48).
        fileprivate var parameters: String {
            switch self {
            case .bold: "1"
            case .dim: "2"
            case .reverse: "7"
            case .warning: "33"
            case .bad: "31"
            case .good: "32"
            }
        }
    }

    /// The number of columns of the terminal; nil for no limit, as for a file or a pipe.
    let width: Int?
    /// Whether styles are written as escape sequences.
    let hasColors: Bool

    init(width: Int?, hasColors: Bool) {
        self.width = width
        self.hasColors = hasColors
    }

    /// Creates the description of standard output as it is now.
    init(color: ColorChoice = .auto) {
        let isTerminal = isatty(STDOUT_FILENO) == 1
        width = isTerminal ? Self.columns(of: STDOUT_FILENO) : nil
        hasColors =
            switch color {
            case .always: true
            case .never: false
            case .auto:
                isTerminal && Self.variable("NO_COLOR") == nil && !["dumb", nil].contains(Self.variable("TERM"))
            }
    }

    /// Returns the text with the escape sequences of a style; as it is without a style or without colors.
    func styled(_ text: String, _ style: Style?) -> String {
        guard hasColors, let style, !text.isEmpty else { return text }
        return "\u{1B}[\(style.parameters)m\(text)\u{1B}[0m"
    }

    /// Returns the lines that a sentence takes on the terminal. It is broken between words, and all lines but the first
    /// are indented. A word that is wider than the terminal has a line of its own.
    func wrapped(_ text: String) -> [String] {
        guard let width else { return [text] }
        var lines: [String] = []
        var line = ""
        for word in text.split(separator: " ", omittingEmptySubsequences: false) {
            let longer = line.isEmpty ? "\(word)" : "\(line) \(word)"
            if line.isEmpty || DisplayWidth.columns(of: longer) <= width {
                line = longer
            } else {
                lines.append(line)
                line = "  \(word)"
            }
        }
        return lines + [line]
    }

    /// Returns the line with the escape sequences of its styles.
    func text(of line: StyledLine) -> String {
        line.parts.reduce("") { $0 + styled($1.text, $1.style) }
    }

    /// Returns the number of columns: COLUMNS if the environment has it, otherwise the terminal's own number, and 80 if
    /// the terminal does not know it, as on a serial line.
    private static func columns(of descriptor: Int32) -> Int {
        if let text = variable("COLUMNS"), let columns = Int(text), columns > 0 { return columns }
        var size = winsize()
        guard ioctl(descriptor, UInt(TIOCGWINSZ), &size) == 0, size.ws_col > 0 else { return 80 }
        return Int(size.ws_col)
    }

    /// Returns an environment variable; nil also for an empty one. The convention for NO_COLOR demands that, and an
    /// empty TERM names no terminal.
    private static func variable(_ name: String) -> String? {
        guard let value = getenv(name), value.pointee != 0 else { return nil }
        return String(cString: value)
    }
}
