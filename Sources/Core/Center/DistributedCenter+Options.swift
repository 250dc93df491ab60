// SPDX-License-Identifier: Apache-2.0
/// The options of clients: batches, and details of notifications (F1).
extension DistributedCenter {
    /// Changes the options of a client for all messages that are sent from now on. A connection without registrations
    /// becomes a client.
    ///
    /// - Throws: ``CenterError/limitExceeded(_:value:)`` or ``CenterError/shareExceeded(_:value:)`` for a new client
    ///   when there are too many clients.
    public func setOptions(
        _ change: ClientOptionsChange, of name: ClientName, effects: inout [Effect]
    ) throws(CenterError) {
        defer { eventEnded() }
        let client = try client(name, effects: &effects)
        let before = client.options
        change.apply(to: &client.options)
        if before != client.options { remember(.options(name, client.options), effects: &effects) }
    }
}
