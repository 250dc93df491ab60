import JSON
import MainLoop

/// Sway's IPC, which tells the process of each window.
///
/// Which window has the focus comes with each change of it. What a change leaves open (a window closed, an empty
/// workspace) the tree of all windows answers. i3 speaks the same protocol, and tells no processes: there the X11 source
/// is the better one.
final class SwaySource: ActivitySource {
    var onEvent: ((ActivityEvent) -> Void)?

    private let path: String
    private let context: MainContext
    private var stream: UnixStream?
    private var incoming: [UInt8] = []
    /// Whether the tree was asked for and has not come, and whether it has to be asked for again then.
    private var isTreePending = false
    private var isTreeStale = false
    /// The windows that were reported as active.
    private var reported: Set<WindowID> = []

    private static let magic = Array("i3-ipc".utf8)
    /// Bytes of one message. A tree has about 1 KiB for each window.
    private static let maximumSize = 16 << 20

    private enum MessageType {
        static let subscribe: UInt32 = 2
        static let tree: UInt32 = 4
        static let workspaceEvent: UInt32 = 0x8000_0000
        static let windowEvent: UInt32 = 0x8000_0003
    }

    /// - Parameter path: of sway's socket.
    init(path: String, context: MainContext) {
        self.path = path
        self.context = context
    }

    func start() {
        do throws(UnixStream.Failure) {
            let stream = try UnixStream(path: path, context: context)
            self.stream = stream
            stream.onBytes = { [unowned self] in receive($0) }
            stream.onEnd = { [unowned self] in end($0) }
            if let processID = stream.peerProcessID { onEvent?(.compositor(processID)) }
            // First the events, then the tree: no change can fall between.
            send(MessageType.subscribe, Array(#"["window","workspace"]"#.utf8))
            askForTree()
        } catch {
            end(error.description)
        }
    }

    private func end(_ reason: String) {
        stream = nil
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
        let header = Self.magic.count + 8
        var start = 0
        while incoming.count - start >= header, stream != nil {
            guard incoming[start...].starts(with: Self.magic) else { return end("what it sends is not i3's IPC") }
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
        guard
            [MessageType.subscribe, MessageType.tree, MessageType.workspaceEvent, MessageType.windowEvent]
                .contains(type)
        else { return }
        guard let message = try? JSON(payload, repairing: true) else { return end("it sends what is no JSON") }
        switch type {
        case MessageType.subscribe:
            if message["success"]?.isTrue != true { end("it refused to tell of changes") }
        case MessageType.tree:
            isTreePending = false
            if isTreeStale { askForTree() } else { handle(tree: message) }
        case MessageType.windowEvent: handle(windowEvent: message)
        default:
            if message["change"]?.text == "focus" { askForTree() }
        }
    }

    private func handle(windowEvent event: JSON) {
        guard let window = event["container"].flatMap(Self.window(of:)) else { return }
        switch event["change"]?.text {
        case "focus":
            // A tree that was asked for before is older than this.
            if isTreePending { isTreeStale = true }
            report(window)
        case "close":
            if reported.remove(window.id) != nil { onEvent?(.closed(window.id)) }
            askForTree()
        default: break
        }
    }

    // MARK: The tree

    private func askForTree() {
        isTreeStale = isTreePending
        guard !isTreePending else { return }
        isTreePending = true
        send(MessageType.tree)
    }

    private func handle(tree: JSON) {
        var windows: Set<WindowID> = []
        var focused: ActivityWindow?
        var nodes = [tree]
        while let node = nodes.popLast() {
            nodes += (node["nodes"]?.elements ?? []) + (node["floating_nodes"]?.elements ?? [])
            guard let window = Self.window(of: node) else { continue }
            windows.insert(window.id)
            if node["focused"]?.isTrue == true { focused = window }
        }
        for id in reported.subtracting(windows) { onEvent?(.closed(id)) }
        reported.formIntersection(windows)
        report(focused)
    }

    private func report(_ window: ActivityWindow?) {
        if let window { reported.insert(window.id) }
        onEvent?(.focused(window))
    }

    /// The window of a node; nil for outputs, workspaces and containers, which have no process.
    private static func window(of node: JSON) -> ActivityWindow? {
        guard let id = node["id"]?.integer, let processID = node["pid"]?.integer, processID > 0,
            processID <= Int64(UInt32.max)
        else { return nil }
        return ActivityWindow(id: String(id), processID: UInt32(processID), application: node["app_id"]?.text)
    }
}
