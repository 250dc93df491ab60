// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop

/// Where state is kept that outlives the process (E3): the file system, or what a simulation puts in its place (E7).
package protocol StateFiles: AnyObject {
    /// Opens a file that the service keeps: not ``RegularFile/Opening/configuration``.
    func open(_ path: String, for opening: RegularFile.Opening) throws(FileError) -> any StateFile
    /// Makes a directory that is private to the user, unless it is there.
    func makeDirectory(_ path: String) throws(FileError)
    /// The names of what is in a directory; none when it can't be read.
    func names(in directory: String) -> [String]
    /// Nil when there is no such file.
    func status(of path: String) -> StateFileStatus?
    func remove(_ path: String)
    /// Whether something listens at a socket, whose name begins with a zero when it is an abstract one; nil when that
    /// can't be found out. Nothing is waited for.
    func isListening(at socket: [UInt8]) -> Bool?
}

/// What a file shows without being opened.
package struct StateFileStatus {
    package var size: Int
    /// When it was written last; of use for comparing only.
    package var modified: Duration

    package init(size: Int, modified: Duration) {
        self.size = size
        self.modified = modified
    }
}

/// An open file, as ``RegularFile`` is one.
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
