// SPDX-License-Identifier: Apache-2.0

package org.carillon;

import java.util.List;
import java.util.Map;
import org.freedesktop.dbus.DBusInterface;
import org.freedesktop.dbus.DBusSignal;
import org.freedesktop.dbus.UInt32;
import org.freedesktop.dbus.UInt64;
import org.freedesktop.dbus.Variant;
import org.freedesktop.dbus.exceptions.DBusException;

/**
 * What the examples need of the interface. dbus-java takes its name and that of its members from here: the package and
 * the interface, the methods, the classes of the signals.
 */
public interface NotificationCenter1 extends DBusInterface {
    String NAME = "org.carillon.NotificationCenter1";
    String PATH = "/org/carillon/NotificationCenter1";

    UInt64 AddObserver(String name, String object, Map<String, Variant<?>> options);

    UInt32 RemoveObservers(String name, String object);

    UInt32 Post(String name, String object, Map<String, Variant<?>> userInfo, Map<String, Variant<?>> options);

    class Notification extends DBusSignal {
        public final String name;
        public final String object;
        public final Map<String, Variant<?>> userInfo;

        public Notification(
                String path, String name, String object, Map<String, Variant<?>> userInfo, List<UInt64> observers,
                String poster, UInt64 serial, UInt64 sequence) throws DBusException {
            super(path, name, object, userInfo, observers, poster, serial, sequence);
            this.name = name;
            this.object = object;
            this.userInfo = userInfo;
        }
    }

    class Dropped extends DBusSignal {
        public final UInt64 count;
        public final String reason;

        public Dropped(String path, UInt64 count, List<UInt64> observers, String reason) throws DBusException {
            super(path, count, observers, reason);
            this.count = count;
            this.reason = reason;
        }
    }
}
