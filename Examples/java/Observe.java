// SPDX-License-Identifier: Apache-2.0

import java.util.Map;
import java.util.TreeMap;
import org.carillon.NotificationCenter1;
import org.freedesktop.DBus;
import org.freedesktop.dbus.DBusConnection;
import org.freedesktop.dbus.UInt32;
import org.freedesktop.dbus.Variant;
import org.freedesktop.dbus.exceptions.DBusException;
import org.freedesktop.dbus.exceptions.DBusExecutionException;

/** Observe [NAME]: prints what is posted under a name, also when the service was restarted in between. */
public class Observe {
    private final String name;
    private final DBus bus;
    private final NotificationCenter1 center;
    private volatile String owner;

    public static void main(String[] arguments) {
        try {
            new Observe(arguments.length > 0 ? arguments[0] : "com.example.Saved");
        } catch (DBusException | DBusExecutionException error) {
            System.err.println("observe: " + error.getMessage());
            System.exit(1);
        }
    }

    private Observe(String name) throws DBusException {
        this.name = name;
        DBusConnection connection = DBusConnection.getConnection(DBusConnection.SESSION);
        // Four threads take signals, in no order. Three of them end, at the next signal: that we own a name.
        connection.changeThreadCount((byte) 1);
        connection.requestBusName("com.example.Observer.P" + ProcessHandle.current().pid());
        bus = connection.getRemoteObject("org.freedesktop.DBus", "/org/freedesktop/DBus", DBus.class);
        center = connection.getRemoteObject(
                NotificationCenter1.NAME, NotificationCenter1.PATH, NotificationCenter1.class);
        bus.StartServiceByName(NotificationCenter1.NAME, new UInt32(0)); // does nothing if it runs
        owner = bus.GetNameOwner(NotificationCenter1.NAME);

        // Anybody may send us a signal. What counts is who sent it.
        connection.addSigHandler(NotificationCenter1.Notification.class, signal -> {
            if (signal.getSource().equals(owner)) {
                received(signal);
            }
        });
        connection.addSigHandler(NotificationCenter1.Dropped.class, signal -> {
            if (signal.getSource().equals(owner)) {
                System.out.println("lost " + signal.count + " (" + signal.reason + ")");
            }
        });
        connection.addSigHandler(DBus.NameOwnerChanged.class, signal -> {
            if (signal.getSource().equals("org.freedesktop.DBus") && signal.name.equals(NotificationCenter1.NAME)) {
                restarted(signal.new_owner);
            }
        });
        observe();
    }

    private void restarted(String newOwner) {
        owner = newOwner;
        try {
            if (newOwner.isEmpty()) {
                bus.StartServiceByName(NotificationCenter1.NAME, new UInt32(0)); // nobody else may call it for hours
            } else {
                observe();
            }
        } catch (DBusExecutionException error) {
            System.err.println("observe: " + error.getMessage());
        }
    }

    private void observe() {
        // The service that the bus started again still knows our observers; without this we would have two.
        center.RemoveObservers("", "");
        center.AddObserver(name, "", Map.of("retained", new Variant<>(true)));
        System.out.println("observing " + name);
    }

    private void received(NotificationCenter1.Notification saved) {
        StringBuilder line = new StringBuilder(saved.name + " " + saved.object);
        new TreeMap<>(saved.userInfo).forEach((key, value) -> line.append(" " + key + "=" + value.getValue()));
        System.out.println(line);
    }
}
