// SPDX-License-Identifier: Apache-2.0
extension MarshalledBytes {
    /// Encodes the values that `body` appends into memory of the caller, such as the output buffer of a channel.
    /// The beginning of the memory counts as aligned to 8 bytes.
    ///
    /// - Parameter memory: Space for all values. An overflow is a programming error.
    /// - Returns: The number of bytes written.
    public static func marshal(
        in memory: UnsafeMutableRawBufferPointer, _ body: (inout MarshalledBytes) -> Void
    ) -> Int {
        guard let start = memory.baseAddress else { return 0 }
        var bytes = MarshalledBytes(start, capacity: memory.count)
        body(&bytes)
        return bytes.count
    }
}
