// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonDBus
import CarillonTestSupport
import CarillonWire

extension Client {
    func setSuspended(_ isSuspended: Bool) throws {
        try call(SetSuspended(isSuspended))
    }

    /// Posts with a number in its userInfo.
    ///
    /// - Returns: how many clients matched; nil when the service went away before it answered.
    func post(_ name: String, number: Int64) throws -> Int? {
        do {
            return try call(try PostCall(name: name, userInfo: ["number": .int64(number)]))
        } catch let error as BusError where error.name == BusError.noReplyName {
            return nil
        }
    }

    /// Queues a post with a number in its userInfo, and waits for no answer.
    func postQueued(_ name: String, number: Int64, style: PostingStyle) throws {
        var options = PostOptions()
        options.postingStyle = style
        connection.send(try PostCall(name: name, userInfo: ["number": .int64(number)], options: options))
    }

    /// The numbers that arrived, in their order.
    var numbers: [Int64] {
        signals.compactMap { signal in
            guard case .int64(let number)? = signal.userInfo["number"] else { return nil }
            return number
        }
    }
}
