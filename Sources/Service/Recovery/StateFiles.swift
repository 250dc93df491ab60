// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop

/// The place of state that survives the process (E3): the file system, or its simulation (E7).
///
/// Threads: one at a time. Calls on the file system may block.
package protocol StateFiles: AnyObject {
    /// Opens a file of the service's state, for any purpose except ``RegularFile/Opening/configuration``.
    func open(_ path: String, for opening: RegularFile.Opening) throws(FileError) -> any StateFile
    /// Creates a directory that is private to the user, if it does not exist.
    func makeDirectory(_ path: String) throws(FileError)
    /// Returns the names of the files in a directory; none when it can't be read.
    func names(in directory: String) -> [String]
    /// Returns the status of a file; nil when there is no such file.
    func status(of path: String) -> StateFileStatus?
    func remove(_ path: String)
    /// Returns whether a process listens at a socket, without waiting. The name of an abstract socket begins with a
    /// zero. Nil when that can't be found out.
    func isListening(at socket: [UInt8]) -> Bool?
}

/// The status of a file that need not be opened.
package struct StateFileStatus {
    package var size: Int
    /// The time of the last write. Only its order is meaningful.
    package var modified: Duration

    package init(size: Int, modified: Duration) {
        self.size = size
        self.modified = modified
    }
}

/// An open file, such as a ``RegularFile``.
package protocol StateFile: AnyObject {
    var path: String { get }
    func size() throws(FileError) -> Int
    var isInPlace: Bool { get }
    var isReplaced: Bool { get }
    func lock() throws(FileError) -> Bool
    func read(at offset: Int, atMost count: Int) throws(FileError) -> [UInt8]
    func append(_ bytes: [UInt8]) throws(FileError)
    func write(_ words: ArraySlice<UInt64>, at offset: Int) throws(FileError)
    func allocate(_ count: Int) throws(FileError)
    func removeAll() throws(FileError)
    func rename(to path: String) throws(FileError)
    func remove()
}

extension RegularFile: StateFile {}
