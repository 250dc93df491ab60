// SPDX-License-Identifier: Apache-2.0
import Foundation

extension Notification.Name {
    static let interfaceThemeChanged = Notification.Name("AppleInterfaceThemeChangedNotification")
    static let screenIsLocked = Notification.Name(rawValue: "com.apple.screenIsLocked")
    static let screenIsUnlocked = Notification.Name(rawValue: "com.apple.screenIsUnlocked")
    static let playerInfo = Notification.Name("com.apple.Music.playerInfo")
    static let openURL = NSNotification.Name("com.example.Reader.openURL")
    static let openedURL = NSNotification.Name("com.example.Reader.openedURL")
    static let preferencesChanged = NSNotification.Name(rawValue: "com.example.Reader.preferencesChanged")
    static let quit = Notification.Name("com.example.Reader.quit")
}
