// SPDX-License-Identifier: Apache-2.0
extension MarshalledBytes {
    /// Lays out what `body` appends where the caller has room for it, aligned as if that place were aligned to 8.
    ///
    /// - Parameter memory: holds all of it. More is a programmer's error.
    /// - Returns: how many bytes it is.
    public static func layOut(
        in memory: UnsafeMutableRawBufferPointer, _ body: (inout MarshalledBytes) -> Void
    ) -> Int {
        guard let start = memory.baseAddress else { return 0 }
        var bytes = MarshalledBytes(start, capacity: memory.count)
        body(&bytes)
        return bytes.count
    }
}
