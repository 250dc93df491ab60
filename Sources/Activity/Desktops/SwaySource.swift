// SPDX-License-Identifier: Apache-2.0
import CarillonJSON
import CarillonMainLoop

/// The activity source for the Sway compositor, over its IPC socket. The IPC reports the process of each window.
///
/// An event of Sway names the window that gets the focus. After other changes, such as a closed window or an empty
/// workspace, the source queries the tree of all windows. i3 has the same protocol, but reports no processes; there
/// ``X11Source`` is used.
final class SwaySource: ActivitySource {
    var onEvent: ((ActivityEvent) -> Void)?
    var watchesVisibility = false

    private let session: SessionEnvironment
    private let context: MainContext
    private var stream: UnixStream?
    /// A second source, for the lock screen. When the lock screen takes the focus, Sway's IPC reports nothing, but over
    /// the Wayland protocol no window is activated any more. The tree is then queried.
    private var activation: ForeignToplevelSource?
    /// Received bytes of incomplete messages.
    private var incoming: [UInt8] = []
    /// Whether a query of the tree has no reply yet.
    private var isTreePending = false
    /// Whether the windows changed after that query, so that its reply is discarded and another query follows.
    private var isTreeStale = false
    /// The windows reported as active or with their visibility.
    private var reported: Set<WindowID> = []
    /// The last reported visibility of each window.
    private var reportedHidden: [WindowID: Bool] = [:]

    private static let magic = Array("i3-ipc".utf8)
    /// The maximum size of a message, in bytes. A tree has about 1 KiB for each window.
    private static let maximumSize = 16 << 20
    /// The maximum depth of nested containers, and of dialogs of dialogs.
    private static let maximumDepth = 64

    /// The message types of the IPC protocol.
    private enum MessageType {
        static let subscribe: UInt32 = 2
        static let tree: UInt32 = 4
        static let version: UInt32 = 7
        static let workspaceEvent: UInt32 = 0x8000_0000
        static let windowEvent: UInt32 = 0x8000_0003
    }

    /// - Parameter session: The environment with the socket of Sway's IPC, and of its Wayland display.
    init(session: SessionEnvironment, context: MainContext) {
        self.session = session
        self.context = context
    }

    func start() {
        do throws(UnixStream.Failure) {
            let stream = try UnixStream(path: session[.swaySocket] ?? "", context: context)
            self.stream = stream
            stream.onBytes = { [unowned self] in receive($0) }
            stream.onEnd = { [unowned self] in end($0) }
            if let processID = stream.peerProcessID { onEvent?(.compositor(processID)) }
            // The subscription precedes the tree, so that no change is missed between them.
            send(MessageType.subscribe, Array(#"["window","workspace"]"#.utf8))
            askForTree()
            watchActivation()
        } catch {
            end(error.description)
        }
    }

    /// Watches for the lock screen. Without a Wayland display, or if the second source fails, only the IPC is used.
    private func watchActivation() {
        guard session[.waylandDisplay] != nil else { return }
        let activation = ForeignToplevelSource(session: session, context: context)
        self.activation = activation
        activation.onEvent = { [unowned self] in if $0 == .focused(nil) { askForTree() } }
        activation.start()
    }

    func requestAnswer() { send(MessageType.version) }

    private func end(_ reason: String) {
        (stream, activation) = (nil, nil)
        onEvent?(.ended(reason: reason))
    }

    // MARK: Messages

    private func send(_ type: UInt32, _ payload: [UInt8] = []) {
        // Numbers are in the machine's byte order.
        stream?.enqueue(
            Self.magic + withUnsafeBytes(of: UInt32(payload.count)) { Array($0) }
                + withUnsafeBytes(of: type) { Array($0) } + payload)
    }

    private func receive(_ bytes: [UInt8]) {
        incoming += bytes
        // A header has the magic text of six bytes, the size of the payload, and the message type.
        let header = Self.magic.count + 8
        var start = 0
        while incoming.count - start >= header, stream != nil {
            guard incoming[start...].starts(with: Self.magic) else { return end("it does not speak i3's protocol") }
            let size = Int(number(at: start + 6))
            guard size <= Self.maximumSize else { return end("it sends a message of \(size) bytes") }
            guard incoming.count - start >= header + size else { break }
            let payload = incoming[(start + header)..<(start + header + size)]
            let type = number(at: start + 10)
            start += header + size
            handle(type, payload)
        }
        incoming.removeFirst(start)
    }

    private func number(at position: Int) -> UInt32 {
        incoming.withUnsafeBytes { $0.loadUnaligned(fromByteOffset: position, as: UInt32.self) }
    }

    private func handle(_ type: UInt32, _ payload: ArraySlice<UInt8>) {
        switch type {
        case MessageType.version: return onEvent?(.alive) ?? ()
        case MessageType.windowEvent: if !mayConcernFocus(payload) { return }
        case MessageType.subscribe, MessageType.tree, MessageType.workspaceEvent: break
        default: return
        }
        guard let message = try? JSON(payload, repairing: true) else { return end("it sends invalid JSON") }
        switch type {
        case MessageType.subscribe:
            if message["success"]?.isTrue != true { end("it refused to report changes") }
        case MessageType.tree:
            isTreePending = false
            if isTreeStale { askForTree() } else { handle(tree: message) }
        case MessageType.windowEvent: handle(windowEvent: message)
        default:
            if watchesVisibility || message["change"]?.text == "focus" { askForTree() }
        }
    }

    /// Whether an event of a window may concern the focus, judged by its first bytes, which name the change. The events
    /// of titles are frequent and can't be excluded from the subscription. Parsing an event completely would cost
    /// thirty times as much as this check. Changes that hide other windows matter only if visibility is watched.
    private func mayConcernFocus(_ payload: ArraySlice<UInt8>) -> Bool {
        !Self.irrelevantEvents.contains { payload.starts(with: $0) }
            && (watchesVisibility || !Self.hidingEvents.contains { payload.starts(with: $0) })
    }

    /// The beginnings of events that never concern the focus.
    private static let irrelevantEvents = ["title", "mark", "urgent"].map(beginning)
    /// The beginnings of events that may hide other windows.
    private static let hidingEvents = ["fullscreen_mode", "floating"].map(beginning)

    /// Returns the beginning of an event, as Sway's JSON library writes it.
    private static func beginning(_ change: String) -> [UInt8] { Array("{ \"change\": \"\(change)\",".utf8) }

    private func handle(windowEvent event: JSON) {
        guard let window = event["container"].flatMap(Self.window(of:)) else { return }
        switch event["change"]?.text {
        case "focus":
            // The reply to a pending query may be older than this event.
            if isTreePending { isTreeStale = true }
            report(window)
            // The event does not contain the window that this one is transient for, nor the visibility; the tree does.
            if watchesVisibility || event["container"].flatMap(Self.transientFor) != nil { askForTree() }
        case "close":
            if reported.remove(window.id) != nil { onEvent?(.closed(window.id)) }
            reportedHidden[window.id] = nil
            askForTree()
        default: if watchesVisibility { askForTree() }
        }
    }

    // MARK: The tree

    /// Queries the tree of all windows; a query during another one follows it.
    private func askForTree() {
        isTreeStale = isTreePending
        guard !isTreePending else { return }
        isTreePending = true
        send(MessageType.tree)
    }

    /// Reports closed windows, the visibility of windows, and the active window, from a reply with the tree.
    private func handle(tree: JSON) {
        var windows: [WindowID: ActivityWindow] = [:]
        // X11 windows by their numbers, and the window that each is transient for.
        var (numbers, parents): ([Int64: ActivityWindow], [WindowID: Int64]) = ([:], [:])
        var focused: WindowID?
        var nodes = [tree]
        while let node = nodes.popLast() {
            nodes += Self.children(of: node)
            if node["focused"]?.isTrue == true { focused = Self.focusedWindow(in: node)?.id }
            guard let window = Self.window(of: node) else { continue }
            windows[window.id] = window
            if watchesVisibility { reportVisibility(of: window, node) }
            if let number = node["window"]?.integer { numbers[number] = window }
            parents[window.id] = Self.transientFor(node)
        }
        for id in reported.subtracting(windows.keys) { onEvent?(.closed(id)) }
        reported.formIntersection(windows.keys)
        reportedHidden = reportedHidden.filter { windows[$0.key] != nil }
        guard let focused, var window = windows[focused] else { return report(nil) }
        var child = window
        while let parent = parents[child.id].flatMap({ numbers[$0] }), window.transientFor.count < Self.maximumDepth {
            window.transientFor.append(parent.statedOwner)
            child = parent
        }
        report(window)
    }

    /// Reports the visibility of a window. Windows are hidden on workspaces that no output shows, behind other tabs,
    /// and in the scratchpad.
    private func reportVisibility(of window: ActivityWindow, _ node: JSON) {
        guard let isVisible = node["visible"]?.isTrue, reportedHidden[window.id] != !isVisible else { return }
        reportedHidden[window.id] = !isVisible
        reported.insert(window.id)
        onEvent?(.window(window, isHidden: !isVisible))
    }

    private static func children(of node: JSON) -> [JSON] {
        (node["nodes"]?.elements ?? []) + (node["floating_nodes"]?.elements ?? [])
    }

    /// Returns the window that has the focus, below a node that Sway marks as focused. For a container it is the window
    /// that was focused last in it. A focused workspace has no focused window.
    private static func focusedWindow(in node: JSON) -> ActivityWindow? {
        var node = node
        for _ in 0..<maximumDepth {
            if let window = window(of: node) { return window }
            guard node["type"]?.text?.hasSuffix("con") == true, let last = node["focus"]?.elements.first?.integer,
                let child = children(of: node).first(where: { $0["id"]?.integer == last })
            else { return nil }
            node = child
        }
        return nil
    }

    private func report(_ window: ActivityWindow?) {
        if let window { reported.insert(window.id) }
        onEvent?(.focused(window))
    }

    /// Returns the window of a node; nil for outputs, workspaces and containers, which have no process.
    private static func window(of node: JSON) -> ActivityWindow? {
        guard let id = node["id"]?.integer, let processID = node["pid"]?.integer, processID > 0,
            processID <= Int64(UInt32.max)
        else { return nil }
        var window = ActivityWindow(
            id: String(id), processID: UInt32(processID), application: node["app_id"]?.text)
        switch node["window_properties"]?["window_type"]?.text {
        case "dock", "desktop": window.kind = .shell
        case "notification", "tooltip", "splash", "menu", "dropdown_menu", "popup_menu": window.kind = .passing
        default: break
        }
        return window
    }

    /// Returns the X11 window that the window of a node is transient for. Sway does not report this for Wayland
    /// windows.
    private static func transientFor(_ node: JSON) -> Int64? {
        node["window_properties"]?["transient_for"]?.integer
    }
}
