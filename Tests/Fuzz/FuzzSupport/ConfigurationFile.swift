// SPDX-License-Identifier: Apache-2.0
import CCarillonGLib
import Glibc

/// The configuration that this process sees: a directory of its own, not that of the user.
public enum ConfigurationFile {
    private static let directory: String = {
        var template = Array("/tmp/carillon-fuzz-XXXXXX".utf8CString)
        guard let made = template.withUnsafeMutableBufferPointer({ mkdtemp($0.baseAddress!) }) else {
            Fuzzer.fail("no temporary directory")
        }
        let path = String(cString: made)
        setenv("XDG_CONFIG_HOME", path, 1)
        setenv("XDG_CONFIG_DIRS", path + "/none", 1)
        mkdir(path + "/carillon", 0o700)
        atexit {
            unlink(ConfigurationFile.path)
            rmdir(ConfigurationFile.directory + "/carillon")
            rmdir(ConfigurationFile.directory)
        }
        return path
    }()

    private static var path: String { directory + "/carillon/carillon.conf" }

    /// Writes the file; nil removes it. Call it before the first object that reads a configuration is made.
    public static func write(_ text: String?) {
        guard let text else {
            unlink(path)
            return
        }
        guard let file = fopen(path, "we") else { Fuzzer.fail("can't write \(path)") }
        fputs(text, file)
        fclose(file)
    }
}
