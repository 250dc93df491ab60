/// Clients that have a channel (F2): what goes to them is written to a socket of their own. The windows are the same; that
/// all of one was written confirms it, as what is in the socket reaches the client without anybody's help.
extension DistributedCenter {
    /// The connection gets a channel; it is a client from now on.
    ///
    /// - Returns: how many of its probes may still be answered on the bus, and whether it is being found out in another way
    ///   whether it reads.
    /// - Throws: ``CenterError/limitExceeded(_:value:)`` when it is a new client and there are too many.
    public func channelOpened(
        of name: ClientName, effects: inout [Effect]
    ) throws(CenterError) -> (unansweredProbes: Int, isBeingWitnessed: Bool) {
        defer { eventEnded() }
        let flow = try client(name, effects: &effects).peer.flow
        return (flow.unansweredProbes, flow.isBeingWitnessed)
    }

    /// The client has answered a Ping that is not waited for any more: it is known to answer.
    public func clientAnswers(_ name: ClientName) {
        defer { eventEnded() }
        peers[name]?.flow.noteAnswering()
    }

    /// All that was given for the client's channel before its oldest probe has been written.
    public func channelDrained(_ name: ClientName, effects: inout [Effect]) {
        defer { eventEnded() }
        guard let peer = peers[name] else { return }
        confirm(peer.flow.answered(byPeer: false), of: peer, effects: &effects)
    }

    /// The client's channel ended before the client had read all that was written, perhaps. It is told at once, ahead of
    /// what was not written.
    ///
    /// - Parameters:
    ///   - count: of the notifications that it may miss, at most.
    ///   - losses: that it was told of at the same time, at most.
    ///   - last: the number before the first that was not written; nil when all were.
    public func channelCut(
        _ name: ClientName, atMost count: Int, losses: UInt64, last: UInt64?, effects: inout [Effect]
    ) {
        defer { eventEnded() }
        guard let client = clients[name] else { return }
        noteUncarried(
            FlowWindow.Told(notifications: count, losses: losses), of: client, because: .channelEnded,
            effects: &effects)
        announceUncarried(to: client, sequence: last, effects: &effects)
    }
}
