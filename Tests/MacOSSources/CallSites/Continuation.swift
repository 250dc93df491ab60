// SPDX-License-Identifier: Apache-2.0
// unchanged
import Carillon
import Foundation

func screenIsUnlocked() async {
    let token = Box()
    await withCheckedContinuation { (continuation: CheckedContinuation<Void, Never>) in
        token.value = DistributedNotificationCenter.default().addObserver(
            forName: .init("com.apple.screenIsUnlocked"), object: nil, queue: nil
        ) { _ in
            if let observer = token.value { DistributedNotificationCenter.default().removeObserver(observer) }
            token.value = nil
            continuation.resume()
        }
    }
}

private final class Box: @unchecked Sendable {
    var value: (any NSObjectProtocol)?
}
