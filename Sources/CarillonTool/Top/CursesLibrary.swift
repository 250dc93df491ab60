// SPDX-License-Identifier: Apache-2.0
import CCarillonNcurses

#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#endif

/// The functions of the C library ncurses, for ``CursesScreen``. The library is loaded at run time, so that an
/// installation without `carillon top`, as in a container, does not need it.
struct CursesLibrary {
    /// An ncurses window, of which the program has one: the whole screen.
    typealias Window = UnsafeMutableRawPointer

    /// The error if ncurses is not installed, lacks a function, or does not support the terminal.
    struct Missing: Error, CustomStringConvertible {
        let description: String
    }

    /// The name of the shared library, in the version for wide characters.
    static let name = "libncursesw.so.6"

    let newTerminal: newterm_function
    let endWindows: endwin_function
    let cbreak: cbreak_function
    let noEcho: noecho_function
    let noNewline: nonl_function
    let keypad: keypad_function
    let noDelay: nodelay_function
    let setEscapeDelay: set_escdelay_function
    let setCursor: curs_set_function
    let hasColors: has_colors_function
    let startColor: start_color_function
    let useDefaultColors: use_default_colors_function
    let initPair: init_pair_function
    let getKey: wgetch_function
    let erase: werase_function
    let move: wmove_function
    let setAttributes: wattr_set_function
    let add: waddnstr_function
    let clearNext: clearok_function
    let refresh: wrefresh_function
    let resize: resizeterm_function
    /// The symbol `stdscr`, whose value is set once there is a terminal.
    let standardWindow: UnsafeMutablePointer<Window?>

    /// Loads the library.
    ///
    /// - Throws: ``Missing`` if it is not installed, or lacks a function.
    init() throws(Missing) {
        // The library is never closed, since the functions are used until the process ends.
        guard let library = dlopen(Self.name, RTLD_NOW | RTLD_LOCAL) else {
            throw Missing(description: dlerror().map { String(cString: $0) } ?? "there is no \(Self.name)")
        }
        func find(_ name: String) throws(Missing) -> UnsafeMutableRawPointer {
            guard let symbol = dlsym(library, name) else { throw Missing(description: "\(Self.name) has no \(name)") }
            return symbol
        }
        func function<Function>(_ name: String) throws(Missing) -> Function {
            unsafeBitCast(try find(name), to: Function.self)
        }
        newTerminal = try function("newterm")
        endWindows = try function("endwin")
        cbreak = try function("cbreak")
        noEcho = try function("noecho")
        noNewline = try function("nonl")
        keypad = try function("keypad")
        noDelay = try function("nodelay")
        setEscapeDelay = try function("set_escdelay")
        setCursor = try function("curs_set")
        hasColors = try function("has_colors")
        startColor = try function("start_color")
        useDefaultColors = try function("use_default_colors")
        initPair = try function("init_pair")
        getKey = try function("wgetch")
        erase = try function("werase")
        move = try function("wmove")
        setAttributes = try function("wattr_set")
        add = try function("waddnstr")
        clearNext = try function("clearok")
        refresh = try function("wrefresh")
        resize = try function("resizeterm")
        standardWindow = try find("stdscr").assumingMemoryBound(to: Window?.self)
    }
}
