// SPDX-License-Identifier: Apache-2.0
/// How clients want to be served (F1).
extension DistributedCenter {
    /// The client's word about its options, which holds for what is sent from now on.
    ///
    /// - Throws: ``CenterError/limitExceeded(_:value:)`` when it is a new client and there are too many.
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
