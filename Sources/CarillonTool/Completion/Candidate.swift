// SPDX-License-Identifier: Apache-2.0
/// A possible completion of a word.
struct Candidate: Sendable {
    let word: String
    var description = ""
}
