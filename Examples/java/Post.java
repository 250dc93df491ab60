// SPDX-License-Identifier: Apache-2.0

import java.util.Map;
import org.carillon.NotificationCenter1;
import org.freedesktop.dbus.DBusConnection;
import org.freedesktop.dbus.UInt32;
import org.freedesktop.dbus.Variant;
import org.freedesktop.dbus.exceptions.DBusException;
import org.freedesktop.dbus.exceptions.DBusExecutionException;

/** Post [OBJECT [BYTES]]: posts that a file was saved, as a value that stays for those who come later. */
public class Post {
    public static void main(String[] arguments) {
        try {
            String object = arguments.length > 0 ? arguments[0] : "report.txt";
            long bytes = arguments.length > 1 ? Long.parseLong(arguments[1]) : 4711;
            DBusConnection connection = DBusConnection.getConnection(DBusConnection.SESSION);
            NotificationCenter1 center = connection.getRemoteObject(
                    NotificationCenter1.NAME, NotificationCenter1.PATH, NotificationCenter1.class);
            // The type on the bus is that of the value: a Long is x, an Integer would be i.
            Map<String, Variant<?>> userInfo = Map.of(
                    "bytes", new Variant<>(bytes),
                    "clean", new Variant<>(true),
                    "title", new Variant<>("Annual report — 2026"));
            UInt32 receivers =
                    center.Post("com.example.Saved", object, userInfo, Map.of("retain", new Variant<>(true)));
            System.out.println("reached " + receivers);
            connection.disconnect();
        } catch (DBusExecutionException refused) {
            fail(refused.getType() + ": " + refused.getMessage());
        } catch (DBusException | NumberFormatException error) {
            fail(error.getMessage());
        }
    }

    private static void fail(String message) {
        System.err.println("post: " + message);
        System.exit(1);
    }
}
