// SPDX-License-Identifier: Apache-2.0
//
// post [OBJECT [BYTES]]: posts that a file was saved, as a value that stays for those who come later.

[DBus (name = "org.carillon.NotificationCenter1")]
interface Center : Object {
    public abstract uint post (string name, string object, HashTable<string, Variant> user_info,
                               HashTable<string, Variant> options) throws Error;
}

int main (string[] args) {
    Intl.setlocale ();
    string object = args.length > 1 ? args[1] : "report.txt";
    int64 bytes;
    if (!int64.try_parse (args.length > 2 ? args[2] : "4711", out bytes)) {
        printerr ("post: not a number of bytes: %s\n", args[2]);
        return 1;
    }

    // The type on the bus is that of the value: int64 is x, int would be i.
    var user_info = new HashTable<string, Variant> (str_hash, str_equal);
    user_info["bytes"] = bytes;
    user_info["clean"] = true;
    user_info["title"] = "Annual report — 2026";
    var options = new HashTable<string, Variant> (str_hash, str_equal);
    options["retain"] = true;
    try {
        Center center = Bus.get_proxy_sync (BusType.SESSION, "org.carillon.NotificationCenter1",
                                            "/org/carillon/NotificationCenter1",
                                            DBusProxyFlags.DO_NOT_LOAD_PROPERTIES);
        print ("reached %u\n", center.post ("com.example.Saved", object, user_info, options));
    } catch (Error error) {
        printerr ("post: %s\n", error.message);  // "GDBus.Error:", the name of the error, and its message
        return 1;
    }
    return 0;
}
