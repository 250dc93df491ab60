// SPDX-License-Identifier: Apache-2.0
//
// observe [NAME]: prints what is posted under a name, also when the service was restarted in between.

const string SERVICE = "org.carillon.NotificationCenter1";

// What is needed of the interface; Vala makes AddObserver of add_observer.
[DBus (name = "org.carillon.NotificationCenter1")]
interface Center : Object {
    public signal void notification (string name, string object, HashTable<string, Variant> user_info,
                                     uint64[] observers, string poster, uint64 serial, uint64 sequence);
    public signal void dropped (uint64 count, uint64[] observers, string reason);
    public abstract uint64 add_observer (string name, string object, HashTable<string, Variant> options) throws Error;
    public abstract uint remove_observers (string name, string object) throws Error;
}

Center? center = null;
string wanted;

void appeared (DBusConnection connection, string name, string owner) {
    try {
        // By its unique name: nobody else can send us a signal then.
        center = connection.get_proxy_sync (owner, "/org/carillon/NotificationCenter1",
                                            DBusProxyFlags.DO_NOT_LOAD_PROPERTIES);
        center.notification.connect ((name, object, user_info) => received (name, object, user_info));
        center.dropped.connect ((count, observers, reason) => {
            print ("lost %s (%s)\n", count.to_string (), reason);
        });
        // The service that the bus started again still knows our observers; without this we would have two.
        center.remove_observers ("", "");
        var options = new HashTable<string, Variant> (str_hash, str_equal);
        options["retained"] = true;
        center.add_observer (wanted, "", options);
        print ("observing %s\n", wanted);
    } catch (Error error) {
        printerr ("observe: %s\n", error.message);
    }
}

void vanished (DBusConnection? connection, string name) {
    if (connection == null || center == null) {
        printerr ("observe: there is no %s\n", connection == null ? "session bus" : "notification center");
        Process.exit (1);
    }
    // Nobody else may call the service for hours.
    connection.call.begin ("org.freedesktop.DBus", "/org/freedesktop/DBus", "org.freedesktop.DBus",
                           "StartServiceByName", new Variant ("(su)", SERVICE, 0), null, DBusCallFlags.NONE, -1);
}

void received (string name, string object, HashTable<string, Variant> user_info) {
    print ("%s %s", name, object);
    var keys = user_info.get_keys ();
    keys.sort (strcmp);
    foreach (unowned var key in keys)
        print (" %s=%s", key, text (user_info[key]));
    print ("\n");
}

string text (Variant value) {
    if (value.is_of_type (VariantType.STRING))
        return value.get_string ();
    return value.is_of_type (VariantType.BYTE) ? value.get_byte ().to_string () : value.print (false);
}

void main (string[] args) {
    Intl.setlocale ();
    wanted = args.length > 1 ? args[1] : "com.example.Saved";
    Bus.watch_name (BusType.SESSION, SERVICE, BusNameWatcherFlags.AUTO_START, appeared, vanished);
    new MainLoop ().run ();
}
