// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop

/// The file operations for the state that survives the process (E3): the file system (``SystemFiles``), or a simulation
/// (E7).
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
    /// Removes a file, if it exists.
    func remove(_ path: String)
    /// Returns whether a process listens at a Unix socket, without waiting; nil if that can't be found out.
    ///
    /// - Parameter socket: the path of the socket. The name of an abstract socket begins with a zero byte.
    func isListening(at socket: [UInt8]) -> Bool?
}

/// The size and the time of a file.
package struct StateFileStatus {
    package var size: Int
    /// The time of the last write. It serves only to compare files.
    package var modified: Duration

    package init(size: Int, modified: Duration) {
        self.size = size
        self.modified = modified
    }
}

/// An open file of the state. ``RegularFile`` is the real one.
package protocol StateFile: AnyObject {
    var path: String { get }
    /// Returns the size in bytes.
    func size() throws(FileError) -> Int
    /// Whether the path still names this file.
    var isInPlace: Bool { get }
    /// Whether the path names another file by now.
    var isReplaced: Bool { get }
    /// Locks the file against other processes, until it is closed. Returns false if another process has the lock.
    func lock() throws(FileError) -> Bool
    /// Returns `count` bytes; fewer only at the end of the file.
    func read(at offset: Int, atMost count: Int) throws(FileError) -> [UInt8]
    func append(_ bytes: [UInt8]) throws(FileError)
    /// Writes 64-bit words at an offset in bytes.
    func write(_ words: ArraySlice<UInt64>, at offset: Int) throws(FileError)
    /// Makes the file at least this many bytes long, and reserves the space on disk.
    func allocate(_ count: Int) throws(FileError)
    /// Empties the file.
    func removeAll() throws(FileError)
    /// Renames the file, in place of any file at the new path.
    func rename(to path: String) throws(FileError)
    /// Removes the file at the path.
    func remove()
}

extension RegularFile: StateFile {}
