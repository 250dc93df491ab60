// SPDX-License-Identifier: Apache-2.0
/// A possible completion of the word that the user is typing in a shell.
struct Candidate: Sendable {
    let word: String
    /// An explanation that some shells show beside the word; empty for none.
    var description = ""
}
