// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonClient
import CarillonDBus
import CarillonMainLoop
import CarillonWire

/// The bus and the clock of a process that the library runs in.
final class ProcessBus: SessionBus {
    var onName: ((UniqueName) -> Void)?
    private let bus: Bus
    private let streams: Streams
    private unowned let process: LoopProcess
    private var peers: [Peer] = []
    private static let epoch = ContinuousClock.now

    init(_ bus: Bus, _ streams: Streams, _ process: LoopProcess) {
        self.bus = bus
        self.streams = streams
        self.process = process
    }

    func connect() throws(BusError) -> any BusConnection {
        let peer = bus.connect(processID: process.id)
        peers.append(peer)
        let transport = PeerTransport(peer, of: process, priority: .default)
        transport.onName = { [unowned self] name in onName?(name) }
        return Connection(transport, context: process.context)
    }

    func channelStream(in reply: Message) throws(BusError) -> any ClientStream {
        guard let stream = streams.take(try OpenChannel.reply(in: reply)) else {
            throw .invalidArgs("the descriptor is that of no channel")
        }
        return StreamLine(stream, of: process)
    }

    var now: ContinuousClock.Instant { Self.epoch + .microseconds(process.world.now) }

    func once(milliseconds: UInt32, _ action: @escaping () -> Void) -> AnyObject {
        EventSource.once(milliseconds: milliseconds, on: process.context, action: action)
    }

    func close(losing: Bool) {
        for peer in peers { peer.close(losing: losing) }
    }
}
