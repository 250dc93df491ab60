// SPDX-License-Identifier: Apache-2.0
/// What a word could become.
struct Candidate: Sendable {
    let word: String
    var description = ""
}
